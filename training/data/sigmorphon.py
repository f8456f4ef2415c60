"""The languages of SIGMORPHON 2021, task 1: pronunciation, in three amounts of data."""

LANGUAGES = {  # of each subtask, as the files are named: 33,344, 8,000 and 800 words each
    "high": ("eng_us",),
    "medium": (
        "arm_e",
        "bul",
        "dut",
        "fre",
        "geo",
        "hbs_latn",
        "hun",
        "jpn_hira",
        "kor",
        "vie_hanoi",
    ),
    "low": ("ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"),
}


def corpus_name(language: str) -> str:
    """Return what `training.data.corpus` calls a language's words."""
    return f"sigmorphon2021-{language[:3]}"
