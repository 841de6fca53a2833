"""Writes that a real kube-apiserver's admission does not let pass, and what it answers.

    KUBEBUILDER_ASSETS=… python -m tests.mooring.kube.admission_cases > tests/mooring/kube/admission_answers.jsonl

Each case is a webhook or a policy for one namespace, and a write there.
"""

import asyncio
import base64
import json
import os
import re
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web

from bench.served import apiservers
from mooring.kube.access import load_access

RECORDED = Path(__file__).with_name("admission_answers.jsonl")
Json = dict[str, Any]
Verb = Literal["bind", "status", "event", "delete", "evict", "lease", "claim"]
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_RESOURCES: dict[Verb, tuple[str, str]] = {
    "bind": ("", "pods/binding"),
    "status": ("", "pods/status"),
    "event": ("", "events"),
    "delete": ("", "pods"),
    "evict": ("", "pods/eviction"),
    "lease": ("coordination.k8s.io", "leases"),
    "claim": ("", "persistentvolumeclaims"),
}
_MERGE_PATCH = "application/merge-patch+json"
# Nobody listens there, and no such service exists.
_REFUSED, _NO_SERVICE = "https://127.0.0.1:1/", "service"


@dataclass(frozen=True, slots=True)
class Case:
    """``hook`` is the path at the webhook's server, or where it is instead; ``policy`` is a policy's validation.

    ``is_denied``: the answer shows that nothing was written.
    """

    name: str
    verb: Verb = "bind"
    hook: str = ""
    policy: Json = field(default_factory=dict)
    is_mutating: bool = False
    timeout_s: int = 10
    query: str = ""
    is_denied: bool = True


CASES = [
    Case("webhook-refuses-connections", hook=_REFUSED),
    Case("webhook-hangs", hook="hang", timeout_s=1),
    Case("webhook-without-a-service", hook=_NO_SERVICE),
    Case("webhook-answers-503", hook="answers-503"),
    Case("webhook-answers-garbage", hook="garbage"),
    Case("webhook-answers-nothing", hook="empty"),
    *(Case(f"webhook-denies-{code}", hook=f"deny-{code}") for code in (0, 401, 403, 404, 409, 410, 422, 429, 500, 503)),
    Case("mutating-webhook-refuses-connections", hook=_REFUSED, is_mutating=True),
    Case("mutating-webhook-hangs", hook="hang", is_mutating=True, timeout_s=1),
    Case("mutating-webhook-changes-what-is-deleted", "delete", hook="patch", is_mutating=True),
    Case("policy-denies", policy={"expression": "false", "message": "no"}),
    *(
        Case(f"policy-denies-{reason}", policy={"expression": "false", "message": "no", "reason": reason})
        for reason in ("Forbidden", "RequestEntityTooLarge")
    ),
    Case("policy-fails", policy={"expression": "object.spec.nowhere == 1"}),
    *(Case(f"{verb}-webhook-refuses-connections", verb, hook=_REFUSED) for verb in _RESOURCES if verb != "bind"),
    *(Case(f"{verb}-webhook-denies", verb, hook="deny-403") for verb in _RESOURCES if verb != "bind"),
    # The write may be under way beyond admission when the time is over, and a patch's errors name no webhook.
    Case("request-takes-too-long", hook="hang", query="?timeout=1s", is_denied=False),
    Case("mutating-webhook-sends-a-bad-patch", hook="bad-patch", is_mutating=True, is_denied=False),
]


async def record(kubeconfig: Path, folder: Path) -> AsyncIterator[Json]:
    """Yield the answer of a real server to each case, and whether the write was carried out."""
    access = load_access(str(kubeconfig))
    connector = aiohttp.TCPConnector(ssl=access.tls or True, force_close=True)
    async with (
        _webhook(folder) as (port, authority),
        aiohttp.ClientSession(access.server, connector=connector, headers=access.headers()) as session,
    ):
        server = _Server(session)
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
        for number, case in enumerate(CASES):
            yield await _answer(server, case, number, port, authority)


async def _answer(server: "_Server", case: Case, number: int, port: int, authority: str) -> Json:
    namespace = f"bad{number}"
    await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    method, path, body, content_type = await _prepare(server, case, namespace)
    installed = _webhook_of(case, namespace, port, authority) if case.hook else _policy_of(case, namespace)
    for folder, document in installed:
        await server.ask("POST", f"{_GROUP}/{folder}", document)
    before = await server.read(case, namespace)
    status, answer = await _until_in_force(server, method, path + case.query, body, content_type, case)
    for folder, document in installed:
        await server.ask("DELETE", f"{_GROUP}/{folder}/{document['metadata']['name']}")
    # Beyond the longest that an abandoned write may take.
    await asyncio.sleep(0 if case.is_denied else 3)
    is_written = await server.read(case, namespace) != before
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:10250", json.dumps(answer).replace(namespace, "bad"))
    return {
        "case": case.name,
        "method": method,
        "path": path.replace(namespace, "bad") + case.query,
        "status": status,
        "response": json.loads(text),
        "is_written": is_written,
        "is_denied": case.is_denied,
    }


async def _until_in_force(
    server: "_Server", method: str, path: str, body: Json, content_type: str, case: Case
) -> tuple[int, Any]:
    """Send the write, by dry run until the webhook or policy is in force, and then for real."""
    dry = f"{path}{'&' if case.query else '?'}dryRun=All"
    for _ in range(150):
        status, _ = await server.send(method, dry, body, content_type)
        if status >= 400:
            break
        await asyncio.sleep(0.1)
    else:
        raise TimeoutError(f"case {case.name!r}: the write passes")
    return await server.send(method, path, body, content_type)


async def _prepare(server: "_Server", case: Case, namespace: str) -> tuple[str, str, Json, str]:
    """Create what a case writes to; return the write."""
    core = f"/api/v1/namespaces/{namespace}"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await server.ask("POST", f"{core}/pods", pod)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await server.ask("POST", f"{core}/persistentvolumeclaims", {"metadata": {"name": "p"}, "spec": spec})
    about = {"name": "p", "namespace": namespace}
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    condition = {"type": "PodScheduled", "status": "False", "message": "no room"}
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", **about}, "reason": "Scheduled"}
    claim = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    writes: dict[Verb, tuple[str, str, Json]] = {
        "bind": ("POST", f"{core}/pods/p/binding", {"metadata": about, "target": target}),
        "status": ("PATCH", f"{core}/pods/p/status", {"status": {"conditions": [condition]}}),
        "event": ("POST", f"{core}/events", event),
        "delete": ("DELETE", f"{core}/pods/p", {}),
        "evict": ("POST", f"{core}/pods/p/eviction", {"metadata": about}),
        "lease": ("POST", leases, {"metadata": {"name": "p"}}),
        "claim": ("PATCH", f"{core}/persistentvolumeclaims/p", claim),
    }
    write = writes[case.verb]
    return *write, _MERGE_PATCH if write[0] == "PATCH" else "application/json"


def _rules(verb: Verb) -> Json:
    group, resource = _RESOURCES[verb]
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}


def _only(namespace: str) -> Json:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def _webhook_of(case: Case, namespace: str, port: int, authority: str) -> list[tuple[str, Json]]:
    where: Json = {"url": case.hook if "/" in case.hook else f"https://127.0.0.1:{port}/{case.hook}"}
    if case.hook == _NO_SERVICE:
        where = {"service": {"namespace": "n", "name": "nowhere"}}
    hook = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": case.timeout_s,
        "failurePolicy": "Fail",
        "namespaceSelector": _only(namespace),
        "rules": [_rules(case.verb)],
        "clientConfig": where | {"caBundle": authority},
    }
    kind = "mutatingwebhookconfigurations" if case.is_mutating else "validatingwebhookconfigurations"
    return [(kind, {"metadata": {"name": namespace}, "webhooks": [hook]})]


def _policy_of(case: Case, namespace: str) -> list[tuple[str, Json]]:
    constraints = {"resourceRules": [_rules(case.verb)], "namespaceSelector": _only(namespace)}
    policy = {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": [case.policy]}
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    about = {"metadata": {"name": namespace}}
    return [
        ("validatingadmissionpolicies", about | {"spec": policy}),
        ("validatingadmissionpolicybindings", about | {"spec": binding}),
    ]


@dataclass(frozen=True, slots=True)
class _Server:
    """A real API server."""

    session: aiohttp.ClientSession

    async def send(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers={"Content-Type": content_type}) as answer:
            return answer.status, json.loads(await answer.text())

    async def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        status, answer = await self.send(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {answer}")
        return answer

    async def read(self, case: Case, namespace: str) -> Any:
        """Return what a write of a case would change."""
        folder = "/apis/coordination.k8s.io/v1" if case.verb == "lease" else "/api/v1"
        plural = _RESOURCES[case.verb][1].partition("/")[0]
        listed = await self.ask("GET", f"{folder}/namespaces/{namespace}/{plural}")
        return listed["items"]


@asynccontextmanager
async def _webhook(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Serve a webhook that does what its path says; yield its port and its certificate in base64."""
    certificate, key = apiservers.make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.ServerRunner(web.Server(_review))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1], base64.b64encode(certificate.read_bytes()).decode()
    finally:
        await runner.cleanup()


async def _review(request: web.BaseRequest) -> web.StreamResponse:
    review = json.loads(await request.text())
    what = request.path.strip("/")
    if what == "hang":
        await asyncio.sleep(60)
    if what == "answers-503":
        return web.Response(status=503, text="no healthy upstream")
    if what == "garbage":
        return web.Response(text="<html>")
    answer: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": "patch" in what}
    if "patch" in what:
        operation = "add" if what == "patch" else "remove"
        patch = json.dumps([{"op": operation, "path": "/metadata/labels/nowhere/x", "value": "1"}])
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    if what.startswith("deny-") and (code := int(what.partition("-")[2])):
        answer["status"] = {"code": code, "message": "no"}
    if what == "empty":
        del answer["uid"]
    return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


def by_name() -> Mapping[str, Json]:
    """Return what was recorded."""
    lines = RECORDED.read_text().splitlines()
    return {line["case"]: line for line in map(json.loads, lines)}


async def _print(kubeconfig: Path, folder: Path) -> None:
    async for line in record(kubeconfig, folder):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    with tempfile.TemporaryDirectory() as place, apiservers.real(assets, Path(place)) as started:
        asyncio.run(_print(started, Path(place) / "hook"))
