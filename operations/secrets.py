"""Tokens, keys and passwords in texts that leave the lab: pages of the site, messages of alerts."""

import re

HIDDEN_SECRET = "[secret hidden]"
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)"
    r"|\b(?:hf_|sk-|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|xox[abposr]-|ya29\.|AIza|pypi-|npm_|dckr_pat_)[\w.-]{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*|\b(?:Bearer|Basic)\s+[\w.+/=-]{8,}"
    r"|(?i:[\w-]*(?:password|passwd|secret|api[_-]?key|access[_-]?key|authorization|(?<![a-z])token|credential))[\"']?\s*[=:]\s*\S+",
    re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Return a text without tokens, keys and passwords; names and paths stay."""
    return _SECRETS.sub(HIDDEN_SECRET, text)
