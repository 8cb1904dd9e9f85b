"""What the project's speed is measured by: each case beside a peer or a floor, in one process and one run."""
