"""``python -m agui_relay.cli`` is the command, where no script is installed."""

import sys

from agui_relay.cli import main

if __name__ == "__main__":
    sys.exit(main())
