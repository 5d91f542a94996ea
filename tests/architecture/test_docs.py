"""What is written for people keeps up with the code: settings, error codes, packages and make targets."""

import pkgutil
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import app
from app.domain.errors import AppError
from app.main import release
from app.settings import Settings, variable_names

ROOT = Path(__file__).parents[2]


def text(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def words(*names: str) -> set[str]:
    """Give the variables and codes that the files name; OPENAI_API_KEY does not count as API_KEY."""
    return set(re.findall(r"[A-Z][A-Z0-9_]+", text(*names)))


def error_codes() -> set[str]:
    """Give the code of every error in app, wherever it is defined."""
    for found in pkgutil.walk_packages(app.__path__, "app."):
        import_module(found.name)
    return {error.code for error in family(AppError) if error.__module__.startswith("app.")}


def family(error: type[AppError]) -> Iterator[type[AppError]]:
    yield error
    for child in error.__subclasses__():
        yield from family(child)


def variables_of(example: str) -> dict[str, str]:
    """Give the variables of .env.example with their values, all of which stand behind a #."""
    return dict(re.findall(r"^#?([A-Z][A-Z0-9_]+)=(.*)$", example, re.MULTILINE))


def test_readme_names_each_setting() -> None:
    assert set(variable_names().values()) - words("README.md") == set()


def test_the_example_of_an_env_file_lists_each_setting_and_no_other() -> None:
    assert set(variables_of(text(".env.example"))) == set(variable_names().values())


def test_the_example_of_an_env_file_shows_the_defaults() -> None:
    example = variables_of(text(".env.example"))
    wrong = {
        variable: example[variable]
        for name, variable in variable_names().items()
        if variable in example and not means(example[variable], Settings.model_fields[name].default)
    }
    assert wrong == {}


def means(shown: str, default: object) -> bool:
    """Tell whether the example shows the default; 10 is 10.0, and where there is no plain default it shows anything."""
    match default:
        case bool():
            return shown == str(default).lower()
        case int() | float():
            return float(shown) == default
        case str() | Path():
            return shown == str(default)
        case _:
            return True


def test_each_error_code_is_explained() -> None:
    assert error_codes() - words("README.md", "CONTRIBUTING.md") == set()


def test_the_map_in_contributing_names_each_package() -> None:
    packages = {found.name for found in pkgutil.iter_modules(app.__path__) if found.ispkg}
    described = text("CONTRIBUTING.md")
    assert {name for name in packages if f"`{name}/`" not in described and f"`app/{name}/`" not in described} == set()


def test_each_make_target_is_explained() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", text("Makefile"), re.MULTILINE)
    described = text("README.md", "CONTRIBUTING.md")
    assert targets
    assert [name for name in targets if f"`make {name}" not in described] == []


def test_contributing_names_only_files_and_folders_that_exist() -> None:
    named = set(re.findall(r"`((?:app|tests|migrations|openapi|\.ci)/[\w./]*)`", text("CONTRIBUTING.md")))
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_a_checkout_says_the_version_that_the_project_has() -> None:
    assert tomllib.loads(text("pyproject.toml"))["project"]["version"] == release()
