"""The API server as whoever watches a cluster sees it: HTTP by the standard library, none of Mooring's own client."""

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True, slots=True)
class Api:
    """A Kubernetes API server at ``url``, read and written as JSON objects by the user of a token."""

    url: str
    token: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, kubeconfig: Path) -> "Api":
        """Return the way that a kubeconfig of devcluster's own server names."""
        config = json.loads(kubeconfig.read_text())
        place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = place.get("certificate-authority")
        tls = ssl.create_default_context(cafile=authority) if authority else None
        return cls(place["server"], user.get("token", ""), tls)

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Object:
        """Return the answer's body; raise urllib's HTTPError for a refusal. A PATCH is a JSON merge patch."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=self._headers())
        request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
        with urllib.request.urlopen(request, timeout=30, context=self.tls) as answer:
            found: Object = json.load(answer)
        return found

    def items(self, path: str) -> list[Object]:
        found: list[Object] = self.request("GET", path)["items"]
        return found

    def pods(self) -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in self.items(PODS)}

    def events_of(self, pod: str) -> list[Object]:
        events = self.items("/api/v1/namespaces/default/events")
        return [event for event in events if event["involvedObject"].get("name") == pod]

    def delete_pods(self) -> None:
        for name in self.pods():
            try:
                self.request("DELETE", f"{PODS}/{name}")
            except urllib.error.HTTPError as refused:
                if refused.code != 404:
                    raise

    def watch(self, path: str) -> Iterator[Object]:
        """Yield watch events until the stream ends, which a server that is stopped may cut off."""
        request = urllib.request.Request(f"{self.url}{path}?watch=true", headers=self._headers())
        answer = urllib.request.urlopen(request, timeout=600, context=self.tls)
        with closing(answer) as stream, suppress(OSError, HTTPException):
            for line in stream:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(slots=True)
class Recorder:
    """Every state of every pod that a watcher was shown, in order, kept in a thread of its own."""

    api: Api
    seen: dict[str, list[Object]] = field(default_factory=dict)

    def start(self) -> None:
        threading.Thread(target=self._follow, name="recorder", daemon=True).start()

    def _follow(self) -> None:
        for event in self.api.watch("/api/v1/pods"):
            if event["type"] in ("ADDED", "MODIFIED"):
                pod = event["object"]
                self.seen.setdefault(pod["metadata"]["uid"], []).append(pod)
