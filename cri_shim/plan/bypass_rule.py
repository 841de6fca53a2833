"""Decide when the kubelet is led past the shim: times and answers in, the decision out."""

# A kubelet whose runtime has not answered for 30 s is NotReady (maxWaitForContainerRuntime in pkg/kubelet/kubelet.go of
# Kubernetes). It asks every 5 s (updateRuntimeUp there), and connects again after at most 3.6 s (maxBackoffDelay in
# k8s.io/cri-client, varied by a fifth).
UNSERVED_S = 15.0
# One that ends again sooner than this has not served.
STEADY_S = 5.0


class BypassRule:
    """How long the shim has not served while the runtime answers; times are monotonic, in seconds."""

    def __init__(self, now_s: float) -> None:
        self._served_s = now_s
        self._answers_since_s: float | None = None

    def restart(self, now_s: float) -> None:
        """Count from now."""
        self.__init__(now_s)  # type: ignore[misc]

    def is_due(self, *, shim_answers: bool, runtime_answers: bool, now_s: float) -> bool:
        """Take what both have done with a call; return whether the kubelet is to be led past the shim."""
        if not runtime_answers and not shim_answers:
            # The shim is not to blame, and the runtime's socket would be of no use.
            self.restart(now_s)
            return False
        if not shim_answers:
            self._answers_since_s = None
        elif self._answers_since_s is None:
            self._answers_since_s = now_s
        if self._answers_since_s is not None and now_s - self._answers_since_s >= STEADY_S:
            self._served_s = now_s
        return not shim_answers and now_s - self._served_s >= UNSERVED_S
