"""Documents are read into sections and cut at sentences; what a chunk says is what the document says."""

import io
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.errors import TooLargeError, ValidationError
from app.memory.chunking import OVERLAP, SIZE, chunks_of
from app.memory.reading import Section, read_sections

PAGE = """<html><head><title>T</title><style>p {}</style></head><body><h1>Shop</h1><p>We sell <b>red</b> shoes.</p>
<script>alert("no")</script><h2>Returns &amp; refunds</h2><ul><li>Within 30 days.</li><li>With a receipt.</li></ul>
<table><tr><td>Size</td><td>42</td></tr></table></body></html>"""


async def read(content: str | bytes, kind: str = "text/plain", longest: int = 100_000) -> list[tuple[str | None, str]]:
    sections = await read_sections(content, kind, longest=longest)  # type: ignore[arg-type]
    return [(section.heading, section.text.strip()) for section in sections]


async def test_markdown_is_cut_at_its_headings_and_stays_as_it_was_written() -> None:
    text = "Before.\n\n# One *two*\n\nA `b`.\n\n```\n# no heading\n```\n\nThree\n-----\n\n- c\n- d\n"
    assert await read(text, "text/markdown") == [
        (None, "Before."),
        ("One *two*", "A `b`.\n\n```\n# no heading\n```"),
        ("Three", "- c\n- d"),
    ]


async def test_html_is_the_text_that_a_reader_sees() -> None:
    assert await read(PAGE, "text/html") == [
        ("Shop", "We sell red shoes."),
        ("Returns & refunds", "Within 30 days.\nWith a receipt.\nSize\n42"),
    ]


async def test_html_that_nests_very_deep_is_read() -> None:
    assert await read("<div>" * 5_000 + "deep", "text/html") == [(None, "deep")]


async def test_a_pdf_is_read_page_by_page_in_a_process_of_its_own() -> None:
    assert await read(pdf("Hello Ada", "Second page"), "application/pdf") == [
        ("Page 1", "Hello Ada"),
        ("Page 2", "Second page"),
    ]


@pytest.mark.parametrize("content", [b"", b"no pdf", b"%PDF-1.4\n%%EOF", b"%PDF-1.7\n" + b"\xff" * 1000])
async def test_what_is_no_pdf_is_refused_with_a_sentence(content: bytes) -> None:
    with pytest.raises(ValidationError, match="PDF can't be read"):
        await read(content, "application/pdf")


@pytest.mark.parametrize(
    ("content", "kind"), [("x" * 11, "text/plain"), ("<p>" + "x" * 11, "text/html"), (b"", "application/pdf")]
)
async def test_a_document_that_is_too_long_is_refused(content: str | bytes, kind: str) -> None:
    with pytest.raises(TooLargeError, match="characters of text"):
        await read(content or pdf("x" * 11), kind, longest=10)


@pytest.mark.parametrize(("content", "kind"), [(" \n", "text/plain"), ("<p> </p>", "text/html"), ("", "text/html")])
async def test_a_document_without_text_is_refused(content: str, kind: str) -> None:
    with pytest.raises(ValidationError, match="no text that can be read"):
        await read(content, kind)


async def test_a_document_that_takes_too_long_ends_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.memory.reading.SECONDS", 0.0)
    with pytest.raises(ValidationError, match="took longer"):
        await read("<p>a", "text/html")


def test_a_short_section_is_one_chunk_and_no_chunk_crosses_a_heading() -> None:
    chunks = chunks_of([Section("One. Two.", "A"), Section("Three.", "B")])
    assert [(chunk.heading, chunk.content) for chunk in chunks] == [("A", "One. Two."), ("B", "Three.")]


def test_a_long_section_is_cut_between_sentences_and_the_last_one_is_said_again() -> None:
    sentences = [f"This is sentence number {number} of the long text." for number in range(40)]
    chunks = [chunk.content for chunk in chunks_of([Section(" ".join(sentences))])]
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        assert before.endswith(".")
        assert after.startswith("This is")
        assert after.split(". ")[0] in before
    assert all(any(sentence in chunk for chunk in chunks) for sentence in sentences)


@given(st.text(alphabet="ab .!?\n。…\"'", max_size=3000))
@settings(max_examples=60, deadline=None)
def test_chunks_hold_all_of_a_text_in_order_and_are_not_too_long(text: str) -> None:
    chunks = [chunk.content for chunk in chunks_of([Section(text)])]
    assert all(0 < len(chunk) <= SIZE + OVERLAP for chunk in chunks)
    place = 0
    for chunk in chunks:
        place = text.find(chunk, max(0, place - OVERLAP - SIZE))
        assert place >= 0
        place += len(chunk)
    assert all(word in "".join(chunks) for word in text.split() if len(word) < OVERLAP)


def test_a_word_that_is_longer_than_a_chunk_is_cut() -> None:
    chunks = [chunk.content for chunk in chunks_of([Section("x" * (2 * SIZE + 5))])]
    assert "".join(chunks) == "x" * (2 * SIZE + 5)


def pdf(*pages: str) -> bytes:
    """Write a PDF with a line of text on each page, byte by byte."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out = io.BytesIO(b"")
    out.write(b"%PDF-1.4\n")
    places = []
    for number, text in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{text}\nendobj\n".encode())
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    for place in places:
        out.write(f"{place:010d} 00000 n \n".encode())
    out.write(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()
