"""Where a text is cut before it is tokenized.

llama.cpp splits text for byte-level vocabularies with `std::regex`, which calls itself once for each character of a
match. Runs of about 26,000 letters overflow an 8 MB stack and kill the process (llama.cpp issue 27783; GPT-OSS,
DeepSeek, Mistral and others), and anybody can send one. So a long run is given to it in parts. Only tokens at the cuts
can differ from the uncut text's, and no sense is lost in a run of this length.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

# Characters. No pattern matches across both an ASCII blank and a letter but for one at its ends, so a match is at most
# twice as long: a third of what overflows.
RUN_LIMIT = 4_096

# Each starts only where a run starts, so that a text is read once.
UNBROKEN = re.compile(rf"(?<![^ \t\n\r\f\v])[^ \t\n\r\f\v]{{{RUN_LIMIT + 1},}}")
BLANK = re.compile(rf"(?<!\s)\s{{{RUN_LIMIT + 1},}}")


def long_run_cuts(text: str) -> list[int]:
    """Offsets into `text`, in order, that leave no run longer than `RUN_LIMIT`."""
    runs = (match for pattern in (UNBROKEN, BLANK) for match in pattern.finditer(text))
    return sorted({cut for run in runs for cut in range(run.start() + RUN_LIMIT, run.end(), RUN_LIMIT)})


def outside(cuts: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """The cuts, those inside one of the ordered `spans` moved to its start."""
    starts = [start for start, _ in spans]

    def moved(cut: int) -> int:
        before = bisect_left(starts, cut) - 1
        return starts[before] if before >= 0 and cut < spans[before][1] else cut

    return sorted({moved(cut) for cut in cuts})
