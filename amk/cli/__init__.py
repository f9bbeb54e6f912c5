"""The command line: one file per command, errors in one line, everything printed also as --json."""
