"""Channels: a webhook of Slack or Discord, e-mail, issues of a GitHub repository. An address or a token is never logged."""

import smtplib
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Literal, get_args

import requests

from operations.alerts.messages import Message

SECONDS = 20
DISCORD_CHARACTERS = 2_000
SLACK_CHARACTERS = 3_000
LABEL = "marin-incident"


class NotTakenError(OSError):
    """The other side did not accept a message."""


@dataclass(frozen=True)
class Webhook:
    """A webhook that takes the JSON of Slack (`text`) or Discord (`content`)."""

    url: str = field(repr=False)
    shape: Literal["slack", "discord"] = "slack"

    def __post_init__(self) -> None:
        if self.shape not in get_args(Literal["slack", "discord"]):
            raise ValueError(f"webhook shape is {self.shape!r}; allowed: slack, discord")
        if not self.url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ValueError("a webhook's address must begin with https://")

    def send(self, message: Message) -> None:
        text = f"{message.title}\n{message.text}"
        body = {"text": text[:SLACK_CHARACTERS]}
        if self.shape == "discord":  # a text of a log must not notify everybody
            body = {"content": text[:DISCORD_CHARACTERS], "allowed_mentions": {"parse": []}}
        _checked("the webhook", requests.post, self.url, json=body)


@dataclass(frozen=True)
class Email:
    """Plain text over SMTP, with STARTTLS unless the server is on this machine."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)

    def send(self, message: Message) -> None:
        mail = EmailMessage()
        mail["Subject"] = " ".join(f"[marin] {message.title}".split())[:200]
        mail["From"], mail["To"] = self.sender, ", ".join(self.to)
        mail.set_content(message.text)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=SECONDS) as server:
                if self.host not in ("127.0.0.1", "localhost"):
                    server.starttls()
                if self.user:
                    server.login(self.user, self.password)
                server.send_message(mail)
        except smtplib.SMTPException as error:
            raise NotTakenError(f"{self.host}:{self.port}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class GitHubIssues:
    """One issue for each incident. It is closed when the incident closes.

    The issue's body names the incident, so a repeated message finds it. A person closes the issue of a digest.
    """

    repository: str
    token: str = field(repr=False)
    api: str = "https://api.github.com"

    def send(self, message: Message) -> None:
        number, shared = self._issue_of(message.incidents[0]) if message.what != "digest" else (None, False)
        if message.what == "closed":
            if number is not None:
                self._ask("POST", f"issues/{number}/comments", {"body": message.text})
                if not shared:
                    self._ask("PATCH", f"issues/{number}", {"state": "closed", "state_reason": "completed"})
        elif number is None:
            names = "\n".join(f"<!-- {LABEL}: {each} -->" for each in message.incidents)
            body = f"```\n{message.text}\n```\n\n{names}"[:65_000]
            self._ask("POST", "issues", {"title": message.title[:250], "body": body, "labels": [LABEL]})
        else:
            self._ask("PATCH", f"issues/{number}", {"state": "open"})
            self._ask("POST", f"issues/{number}/comments", {"body": f"again:\n```\n{message.text}\n```"})

    def _issue_of(self, incident: str) -> tuple[int | None, bool]:
        """Return the number of an incident's issue, and whether the issue is a digest of several."""
        page = 1
        while True:
            query = {"labels": LABEL, "state": "all", "per_page": "100", "page": str(page)}
            issues = self._ask("GET", "issues", None, query)
            for issue in issues:
                body = issue.get("body") or ""
                if f"{LABEL}: {incident} " in body:
                    return int(issue["number"]), body.count(f"{LABEL}: ") > 1
            if len(issues) < 100:
                return None, False
            page += 1

    def _ask(self, method: str, path: str, body: Any, query: dict[str, str] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/vnd.github+json"}
        url = f"{self.api}/repos/{self.repository}/{path}"
        return _checked("GitHub", requests.request, method, url, json=body, params=query, headers=headers).json()


def _checked(what: str, call: Any, *arguments: Any, **options: Any) -> requests.Response:
    """Return the answer. Raises: NotTakenError without the address, which may contain a secret."""
    try:
        answer = call(*arguments, timeout=SECONDS, **options)
    except requests.RequestException as error:
        raise NotTakenError(f"{what} did not answer ({type(error).__name__})") from None
    if not answer.ok:
        raise NotTakenError(f"{what} answered {answer.status_code}: {answer.text[:200]}")
    return answer
