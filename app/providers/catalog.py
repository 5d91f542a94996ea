"""Providers that are known by name: where they are, what they speak, which variable holds their key."""

from typing import Final, Literal

from app.domain.frozen import dataclass

DialectName = Literal["chat", "responses", "anthropic", "gemini"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a provider. `key_variable` None means that it asks for no key."""

    dialect: DialectName
    base_url: str
    key_variable: str | None


CATALOG: Final[dict[str, Known]] = {
    "openai": Known("chat", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Known("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "gemini": Known("gemini", "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"),
    "openrouter": Known("chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "mistral": Known("chat", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "groq": Known("chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": Known("chat", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "xai": Known("chat", "https://api.x.ai/v1", "XAI_API_KEY"),
    "ollama": Known("chat", "http://127.0.0.1:11434/v1", None),
}
