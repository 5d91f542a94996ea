"""Reading a folder of skills, and what a prompt tells of them."""

from pathlib import Path

import pytest

from app.domain.errors import ConfigurationError
from app.domain.skills import CUT, OFF, SHOWN_CHARACTERS, Skill, skill_context
from app.skills.folder import load_skills
from tests.requirements import requirement
from tests.skills.making import write_skill


def test_a_folder_with_a_skill_file_is_a_skill_and_its_front_matter_describes_it(tmp_path: Path) -> None:
    write_skill(tmp_path, "pdf-forms", "# Forms\nFill them.", license="MIT", metadata="{category: office}")
    write_skill(tmp_path, "tidy", **{"allowed-tools": "Bash", "compatibility": "any"})
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("Nothing to see.")

    skills = load_skills(tmp_path)

    assert [skill.id for skill in skills.all()] == ["pdf-forms", "tidy"]
    forms = skills.find(" Skill:PDF-Forms ")
    assert forms is not None
    assert (forms.description, forms.category, forms.license) == ("What pdf-forms is for.", "office", "MIT")
    assert forms.instructions.strip() == "# Forms\nFill them."
    assert not load_skills(None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Just text.", "front matter"),
        ("---\nname: [\n---\nx", "not valid YAML"),
        ("---\ndescription: d\n---\nx", "name: Field required"),
        ("---\nname: tidy\n---\nx", "description: Field required"),
        ("---\nname: Tidy_Up\ndescription: d\n---\nx", "name: String should match"),
        ("---\nname: other\ndescription: d\n---\nx", "named 'other' and its folder is not"),
        ("---\n- a\n- b\n---\nx", "front matter: it:"),
    ],
)
def test_a_skill_that_can_not_be_read_is_named_with_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    write_skill(tmp_path, "tidy").write_text(text)

    with pytest.raises(ConfigurationError) as refused:
        load_skills(tmp_path)

    assert refused.value.message.startswith("tidy/SKILL.md")
    assert says in refused.value.message
    assert "\n" not in refused.value.message


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FERMATA_SKILLS_DIR"):
        load_skills(tmp_path / "none")


def test_a_file_of_a_skill_is_read_and_nothing_outside_its_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    file = write_skill(folder, "tidy")
    (file.parent / "steps.txt").write_text("First.")
    (file.parent / "picture.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "secret.txt").write_text("Secret.")
    (file.parent / "link.txt").symlink_to(tmp_path / "secret.txt")
    skills = load_skills(folder)
    skill = skills.all()[0]

    assert skills.read(skill, "steps.txt") == "First."
    outside = ["../../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "picture.bin", ".", "no.txt", "a\0b"]
    assert [skills.read(skill, path) for path in outside] == [None] * len(outside)


@requirement("R12")
def test_three_skills_are_told_in_full_the_rest_is_counted_and_those_that_are_off_are_named() -> None:
    long = Skill("a", "For a.", "x" * 5000, "office")
    told = skill_context([long, *(Skill(name, f"For {name}.", f"Do {name}.") for name in "bcde")], ["z", "y", "z"])

    assert told is not None
    assert "## a (office)\nFor a.\n\n" + "x" * SHOWN_CHARACTERS + CUT + "\n\n## b\n" in told
    assert "x" * (SHOWN_CHARACTERS + 1) not in told
    assert "Do c." in told
    assert "Do d." not in told
    assert "Further skills that are on: 2 (d, e)." in told
    assert told.endswith(f"{OFF} y, z.")


def test_what_is_told_of_skills_is_bounded_and_no_skill_says_nothing() -> None:
    many = [Skill(f"skill-{number}", "d" * 1024, "x" * 9000) for number in range(500)]
    told = skill_context(many, [f"off-{number}" for number in range(500)]) or ""

    assert len(told) < 3 * (1024 + SHOWN_CHARACTERS) + 2000
    assert "and 477 more" in told
    assert skill_context([], []) is None
    assert skill_context([], ["tidy"]) == f"{OFF} tidy."
