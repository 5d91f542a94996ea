"""Which compaction profile a turn uses: its mode decides (R344)."""

from app.domain.policy import Compaction, SummaryPolicy


def profile_of(policy: SummaryPolicy, mode: str) -> tuple[str | None, Compaction]:
    """Give the profile's id, and the settings to go by.

    A mode's own entry counts, else the longest entry that is part of the mode, else the default profile. An id that has
    no settings of its own is told all the same, and goes by what holds for all modes.
    """
    wanted = mode.strip().lower()
    named = policy.by_mode.get(wanted)
    if named is None:
        fitting = sorted((key for key in policy.by_mode if key and key in wanted), key=lambda key: (-len(key), key))
        named = policy.by_mode[fitting[0]] if fitting else policy.default_profile
    return named, policy.profiles.get(named or "", policy.base)
