"""A client of a Kubernetes API server: the few verbs that launchers need, on plain dictionaries.

It is not the official client, whose models drop fields that they do not know and which takes a second to import; see
docs/design/launchers.md. Supported logins: a kubeconfig with a token, a certificate or an exec plugin (GKE's, for example), and
a pod's own account.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests
import yaml

from resources.credentials import TokenPlugin, file_of

log = logging.getLogger(__name__)

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS = 30.0
ASK_AGAIN_SECONDS = 1.0
MAX_RETRY_AFTER_SECONDS = 60.0
NODE_AWAY = (500, 502, 503)
"""Statuses of a request that the API server forwards to a node."""
THROTTLED = 429
"""The server's priority and fairness ask to send the request later."""
AWAY = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
"""The last one: the server went away while it was answering."""
JOBS = "/apis/batch/v1/namespaces/{namespace}/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
CONFIG_MAPS = "/api/v1/namespaces/{namespace}/configmaps"
PODS = "/api/v1/namespaces/{namespace}/pods"
EVENTS = "/api/v1/namespaces/{namespace}/events"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"

type Object = dict[str, Any]


class ApiError(RuntimeError):
    """The server refused. `status` is the HTTP status (404 not found, 409 exists already, 422 not valid).

    `retry_after` is the number of seconds that the server asks to wait, at most `MAX_RETRY_AFTER_SECONDS`.
    """

    def __init__(self, status: int, reason: str, what: str, retry_after: float = 0.0):
        super().__init__(f"{what}: {status} {reason}")
        self.status = status
        self.retry_after = min(retry_after, MAX_RETRY_AFTER_SECONDS)


@dataclass(frozen=True)
class Cluster:
    """A server and the credentials for it. Connections are pooled and may be used by several threads; `close` ends them."""

    server: str
    namespace: str
    ca_file: str | None = None
    token: str = ""
    token_file: str = ""
    """File with a token. It is read at every request, because a pod's token is renewed in place."""

    client_cert: tuple[str, str] | None = None
    plugin: TokenPlugin | None = field(default=None, repr=False, compare=False)
    """Gives a new token when the server no longer accepts the last one."""

    patience_seconds: float = 0.0
    """Seconds that a request is repeated while the server is unreachable (no connection, no answer, 429, 5xx). A create whose
    answer was lost is then refused as "already exists": callers look at the existing object."""

    session: requests.Session = field(default_factory=lambda: _session(), repr=False, compare=False)

    def close(self) -> None:
        self.session.close()

    def create(self, collection: str, body: Object) -> Object:
        return self._json("POST", self._path(collection), body=body)

    def would_create(self, collection: str, body: Object) -> Object:
        """Ask the server to do all of a create but keep the object. Raises: ApiError if it would refuse it."""
        return self._json("POST", self._path(collection), body=body, params={"dryRun": "All"})

    def get(self, collection: str, name: str) -> Object | None:
        """Return an object, or None if there is none."""
        try:
            return self._json("GET", f"{self._path(collection)}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def find(self, collection: str, selector: str = "", fields: str = "") -> list[Object]:
        """Return the objects that match a selector of labels and one of fields."""
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        params = {name: value for name, value in selectors.items() if value}
        return self._json("GET", self._path(collection), params=params)["items"]

    def annotate(self, collection: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Annotate the object with this uid. Raises: ApiError if another object has the name now."""
        self.merge(f"{self._path(collection)}/{name}", {"metadata": {"uid": uid, "annotations": dict(annotations)}})

    def give(self, collection: str, name: str, uid: str, owner: Object) -> None:
        """Let an object of this uid be deleted with its owner. `owner` is metadata with `ownerReferences`. Raises: ApiError."""
        self.merge(f"{self._path(collection)}/{name}", {"metadata": {"uid": uid, **owner}})

    def merge(self, path: str, patch: Object) -> Object:
        """JSON merge patch of an object by its whole path."""
        return self._json("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def delete(
        self,
        collection: str,
        name: str,
        uid: str | None = None,
        *,
        policy: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object and what it owns (`Foreground`: it stays until that is gone).

        Nothing happens if it is gone or if the object has another uid now.
        """
        body: Object = {"propagationPolicy": policy}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            self._json("DELETE", f"{self._path(collection)}/{name}", body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def log(self, pod: str, container: str, *, since: str = "", tail: int = 0) -> list[str]:
        """Return lines of a container's log, each with its time in front; empty if it has not started or its node is gone."""
        params: dict[str, Any] = {"container": container, "timestamps": "true"}
        if since:
            params["sinceTime"] = since
        if tail:
            params["tailLines"] = tail
        try:
            answer = self._request("GET", f"{self._path(PODS)}/{pod}/log", params=params, final=NODE_AWAY)
        except ApiError as error:
            if error.status in (400, 404, *NODE_AWAY):  # not started; gone
                return []
            raise
        return answer.text.splitlines()

    def server_version(self) -> str:
        return str(self._json("GET", "/version")["gitVersion"])

    def watch(self, path: str, seconds: int) -> Iterator[Object]:
        """Yield events of a collection (a whole path) as they come, for some seconds."""
        answer = self._request("GET", path, params={"watch": "true", "timeoutSeconds": seconds}, stream=True)
        with answer:
            for line in answer.iter_lines():
                if line:
                    yield json.loads(line)

    def _path(self, collection: str) -> str:
        return collection.format(namespace=self.namespace)

    def _json(self, method: str, path: str, **options: Any) -> Object:
        answer = self._request(method, path, **options)
        try:
            return answer.json()
        except requests.JSONDecodeError as error:
            what = f"{method} {path}: {self.server} answers {answer.status_code} with no JSON, as a login page or a proxy does"
            raise ApiError(answer.status_code, f"{answer.text[:200]!r}", what) from error

    def _request(self, method: str, path: str, *, final: tuple[int, ...] = (), **options: Any) -> requests.Response:
        """Send a request, and repeat it for `patience_seconds` while the server is unreachable. Both that and its end are
        logged once.

        Statuses in `final` are answers, not signs of an unreachable server.
        """
        away_since: float | None = None
        has_new_token = False
        while True:
            try:
                answer = self._send(method, path, **options)
            except requests.exceptions.SSLError:  # a wrong certificate stays wrong
                raise
            except (*AWAY, ApiError) as error:
                if isinstance(error, ApiError):
                    if error.status == 401 and self.plugin is not None and not has_new_token:
                        self.plugin.token(fresh=True)
                        has_new_token = True
                        continue
                    if (error.status < 500 and error.status != THROTTLED) or error.status in final:
                        raise
                if away_since is None:
                    away_since = time.monotonic()
                    if self.patience_seconds:
                        message = "the API server at %s does not answer (%s); jobs continue meanwhile"
                        log.warning(message, self.server, type(error).__name__)
                if time.monotonic() - away_since >= self.patience_seconds:
                    raise
                time.sleep(max(ASK_AGAIN_SECONDS, error.retry_after) if isinstance(error, ApiError) else ASK_AGAIN_SECONDS)
                continue
            if away_since is not None:
                log.warning("the API server answers again, after %.0f s", time.monotonic() - away_since)
            return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        params: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        stream: bool = False,
    ) -> requests.Response:
        token = self.token
        if self.token_file:
            token = Path(self.token_file).read_text().strip()
        elif self.plugin is not None:
            token = self.plugin.token()
        headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {token}"} if token else {})
        answer = self.session.request(
            method,
            self.server + path,
            data=None if body is None else json.dumps(body),
            params=params,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            stream=stream,
            verify=self.ca_file or True,
            cert=self.client_cert,
        )
        if answer.status_code >= 400:
            retry_after = answer.headers.get("Retry-After", "")  # seconds; Kubernetes sends no dates
            raise ApiError(
                answer.status_code, _reason(answer), f"{method} {path}", float(retry_after) if retry_after.isdigit() else 0.0
            )
        return answer


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # ignore a proxy or a .netrc of the environment
    return session


def _reason(answer: requests.Response) -> str:
    try:
        return str(answer.json().get("message", answer.reason))
    except requests.JSONDecodeError:
        return f"{answer.reason} {answer.text[:200]}"


def connect(kubeconfig: str, namespace: str, patience_seconds: float = 0.0, context: str = "") -> Cluster:
    """Connect to the cluster of a kubeconfig's context (default: its current one); without a kubeconfig, that of
    `$KUBECONFIG` or the pod's account.

    Raises: ValueError naming what is missing.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    if path:
        return replace(from_kubeconfig(Path(path), namespace, context), patience_seconds=patience_seconds)
    if context:
        raise ValueError(f"context is {context!r}, but there is no kubeconfig; set kubeconfig in the settings, or KUBECONFIG")
    if not (IN_CLUSTER / "token").exists():
        raise ValueError("no Kubernetes cluster: neither a kubeconfig is named, nor KUBECONFIG set, nor is this a pod")
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    ca_file, token_file = str(IN_CLUSTER / "ca.crt"), str(IN_CLUSTER / "token")
    return Cluster(server, namespace, ca_file, token_file=token_file, patience_seconds=patience_seconds)


def from_kubeconfig(path: Path, namespace: str, context: str = "") -> Cluster:
    """Read a context of a kubeconfig, by default its current one.

    Raises: ValueError if there is no such context, or if it has no credentials that we support.
    """
    record = yaml.safe_load(path.read_text())
    contexts = {entry["name"]: entry["context"] for entry in record["contexts"]}
    current = context or record.get("current-context", "")
    if current not in contexts:
        raise ValueError(
            f"{path}: {'context' if context else 'current-context'} is {current!r}; contexts: {', '.join(contexts)}"
        )
    clusters = {entry["name"]: entry["cluster"] for entry in record["clusters"]}
    users = {entry["name"]: entry["user"] for entry in record["users"]}
    cluster, user = clusters[contexts[current]["cluster"]], users[contexts[current]["user"]]
    cert, key = file_of(user, "client-certificate"), file_of(user, "client-key")
    connected = Cluster(
        server=cluster["server"].rstrip("/"),
        namespace=namespace,
        ca_file=file_of(cluster, "certificate-authority"),
        token=user.get("token", ""),
        token_file=user.get("tokenFile", ""),
        client_cert=(cert, key) if cert and key else None,
        plugin=TokenPlugin(user["exec"]) if "exec" in user and "token" not in user else None,
    )
    if not (connected.token or connected.token_file or connected.client_cert or connected.plugin):
        raise ValueError(f"{path}: the user of context {current} has neither token, tokenFile, exec nor client certificate")
    return connected
