"""Push sources: requests over HTTP whose clients are told once what came of them is outside, and what it was."""
