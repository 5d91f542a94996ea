"""Folders of skills, as tests need them."""

from pathlib import Path
from typing import Any


def write_skill(folder: Path, name: str, body: str = "Do it well.", **front: Any) -> Path:
    """Write a skill with its front matter and give its file."""
    lines = {"name": name, "description": f"What {name} is for.", **front}
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "\n".join(f"{key}: {value}" for key, value in lines.items() if value is not None)
    file.write_text(f"---\n{head}\n---\n\n{body}\n", encoding="utf-8")
    return file
