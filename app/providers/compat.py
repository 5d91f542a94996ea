"""How servers of the Chat Completions dialect differ: one small record, no branch per vendor anywhere else."""

from typing import Final, Literal
from urllib.parse import urlsplit

from app.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ChatCompat:
    """Quirks of one server. The defaults suit most servers that say they speak the dialect."""

    include_usage: bool = True
    """Ask for usage in the stream; a server that refuses the option is asked again without it."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    user_field: bool = True
    cache_key_field: bool = False
    """Send `prompt_cache_key`, which brings requests that begin alike to the machine that has read their beginning."""

    tool_choice: bool = True
    """Whether the server takes `tool_choice`; without it the tools are sent alone, and `none` sends no tools."""

    call_id: Literal["any", "alnum9"] = "any"
    """Form of call ids: Mistral takes exactly nine letters and digits."""

    reasoning_replay: Literal["reasoning_content", "reasoning"] | None = None
    """Field in which the model's reasoning goes back in the assistant messages of tool rounds."""

    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """Fields that may hold reasoning; the first one that a delta has is read, never two."""

    think_tags: bool = False
    """Take `<think>…</think>` out of the content and read it as reasoning."""

    replay_extra_content: bool = False
    """Send back `extra_content` of calls (Gemini's thought signatures through its OpenAI endpoint)."""

    media_after_tools: bool = True
    """Whether a user's message may follow a tool's: images and files of results are sent in one, else only told of."""

    content_required: bool = False
    """Send an empty string instead of no content in assistant messages that only call tools."""


PRESETS: Final[dict[str, ChatCompat]] = {
    "generic": ChatCompat(),
    "openai": ChatCompat(max_tokens_field="max_completion_tokens", cache_key_field=True),
    "azure": ChatCompat(max_tokens_field="max_completion_tokens"),
    "mistral": ChatCompat(call_id="alnum9", user_field=False, media_after_tools=False, content_required=True),
    "deepseek": ChatCompat(reasoning_replay="reasoning_content"),
    "openrouter": ChatCompat(reasoning_fields=("reasoning", "reasoning_content")),
    "groq": ChatCompat(max_tokens_field="max_completion_tokens"),
    "gemini": ChatCompat(replay_extra_content=True, user_field=False),
    "ollama": ChatCompat(tool_choice=False),
    "vllm": ChatCompat(),
    "llamacpp": ChatCompat(content_required=True),
}

_HOSTS: Final[tuple[tuple[str, str], ...]] = (
    ("api.openai.com", "openai"),
    (".openai.azure.com", "azure"),
    ("api.mistral.ai", "mistral"),
    ("api.deepseek.com", "deepseek"),
    ("openrouter.ai", "openrouter"),
    ("api.groq.com", "groq"),
    ("generativelanguage.googleapis.com", "gemini"),
)
_OLLAMA_PORT: Final = 11434


def compat_for(base_url: str) -> ChatCompat:
    """Guess the quirks from where the server is; the defaults hold for a server that is not known."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    for ending, preset in _HOSTS:
        if host == ending.removeprefix(".") or host.endswith("." + ending.removeprefix(".")):
            return PRESETS[preset]
    return PRESETS["ollama"] if parts.port == _OLLAMA_PORT else PRESETS["generic"]
