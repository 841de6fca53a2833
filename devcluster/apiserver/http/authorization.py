"""Authorize a request: find its user, evaluate RBAC, remember the answer."""

from collections.abc import Set

from multidict import CIMultiDictProxy

from devcluster.apiserver.access import rbac
from devcluster.apiserver.access.identity import User
from devcluster.apiserver.call import Call
from devcluster.apiserver.cluster import Cluster
from devcluster.apiserver.status import ApiError


class Authorizer:
    """The requests by user, as an audit log would show them: each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.allowed: dict[str, set[rbac.Attributes]] = {}
        self.refused: dict[str, set[rbac.Attributes]] = {}

    def admit(self, headers: CIMultiDictProxy[str], call: Call) -> User:
        """Return the user of a call; raise 401 or 403 if it must not be carried out."""
        authorization = headers.get("Authorization", "")
        user = self._cluster.tokens.user(authorization, self._cluster.store, self._cluster.clock())
        user = self._impersonate(user, headers)
        asked = rbac.attributes_of(call)
        try:
            rbac.check(self._cluster.store, user, asked)
        except ApiError:
            self.refused.setdefault(user.name, set()).add(asked)
            raise
        if not user.is_master:
            self.allowed.setdefault(user.name, set()).add(asked)
        return user

    def _impersonate(self, user: User, headers: CIMultiDictProxy[str]) -> User:
        """Return the user as which this one acts; raise 403 without the right to.

        Source: WithImpersonation in k8s.io/apiserver, pkg/endpoints/filters/impersonation.go.
        """
        name, groups = headers.get("Impersonate-User"), headers.getall("Impersonate-Group", [])
        if name is None:
            return user
        rbac.check(self._cluster.store, user, rbac.Attributes("impersonate", "", "users", name=name))
        for group in groups:
            rbac.check(self._cluster.store, user, rbac.Attributes("impersonate", "", "groups", name=group))
        return User(name, (*groups, "system:authenticated"))

    def asked(self, user: str) -> Set[rbac.Attributes]:
        """Return all that a user has requested, refused or not."""
        return self.allowed.get(user, set()) | self.refused.get(user, set())
