"""How events travel: whole, or as fragments that an assembler joins again."""
