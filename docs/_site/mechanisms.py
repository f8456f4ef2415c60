"""Print the page of all mechanisms: python docs/_site/mechanisms.py > docs/mechanisms.md."""

from pathlib import Path

from keras_attention import distributions, mechanisms

DRAWN = Path(__file__).parents[1] / "pictures" / "mechanisms"
PAGE = (Path(__file__).parent / "mechanisms.md").read_text(encoding="utf-8")


def class_of(name: str) -> str:
    """Return the class that a mechanism is made of, with the arguments that tell it from others."""
    layer = mechanisms.make(name, units=4)
    settings = {key: layer.get_config().get(key) for key in ("score", "normalize", "predictive")}
    arguments = (f"{key}={value!r}" for key, value in settings.items() if value)
    return f"`{type(layer).__name__}({', '.join(arguments)})`".replace("()", "")


def page() -> str:
    """Return the page, Markdown."""
    rows = "\n".join(
        f"| `{name}` | {class_of(name)} | {mechanism.about} |"
        for name, mechanism in mechanisms.BY_NAME.items()
    )
    names = ", ".join(f"`{name}`" for name in distributions.BY_NAME)
    pictures = "\n".join(
        f"![`{name}`](pictures/mechanisms/{name}.svg)"
        for name in mechanisms.BY_NAME
        if (DRAWN / f"{name}.svg").exists()
    )
    text = PAGE
    for slot, value in (("rows", rows), ("distributions", names), ("pictures", pictures)):
        text = text.replace(f"{{{slot}}}", value)
    return text


if __name__ == "__main__":
    print(page(), end="")
