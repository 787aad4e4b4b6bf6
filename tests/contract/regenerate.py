"""Write the golden copy of the contract anew: `python -m tests.contract.regenerate [--break]`.

A change that breaks older services is refused, unless it is made on purpose with `--break`.
"""

from __future__ import annotations

import sys

from tests.contract.compatibility import GOLDEN, breaks, current, read_golden, write_golden


def main(arguments: list[str]) -> int:
    found = breaks(read_golden(), current()) if GOLDEN.exists() else []
    if found and "--break" not in arguments:
        print("older services would not understand this:", *found, sep="\n  ", file=sys.stderr)
        return 1
    write_golden(current())
    print(f"wrote {GOLDEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
