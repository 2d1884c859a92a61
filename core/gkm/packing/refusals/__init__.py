"""Why a run does not fit, and the smallest changes with which it would."""
