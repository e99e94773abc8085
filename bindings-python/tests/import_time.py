"""What importing the package costs over an empty interpreter. Prints it; what is asserted does not depend on the machine.

Not a test of pytest's: it is run by the interpreter that the package was installed for.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15


def milliseconds(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    code = "import sys, onelock; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "onelock" in loaded
    # it alone costs more than everything else together, and most programs with threads never need it
    assert "asyncio" not in loaded, "importing onelock imports asyncio"
    costs = [milliseconds("import onelock") - milliseconds("pass") for _ in range(ROUNDS)]
    print(f"import onelock: {statistics.median(costs):.1f} ms over an empty interpreter, median of {ROUNDS}")


if __name__ == "__main__":
    main()
