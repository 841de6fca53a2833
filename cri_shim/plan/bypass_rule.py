"""Decide when the kubelet should bypass the shim: times and answers in, the decision out."""

# Seconds without service until the bypass. A node is NotReady if its runtime has not answered for 30 s
# (maxWaitForContainerRuntime in pkg/kubelet/kubelet.go of Kubernetes). The kubelet asks every 5 s (updateRuntimeUp
# there), and reconnects after at most 3.6 s (maxBackoffDelay in k8s.io/cri-client, varied by a fifth).
UNSERVED_S = 15.0
# Seconds for which a shim must answer to count as serving again.
STEADY_S = 5.0


class BypassRule:
    """Measures how long the shim has not served while the runtime answers; times are in monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._served_s = now_s
        self._answers_since_s: float | None = None

    def restart(self, now_s: float) -> None:
        """Restart the measurement now."""
        self.__init__(now_s)  # type: ignore[misc]

    def is_due(self, *, shim_answers: bool, runtime_answers: bool, now_s: float) -> bool:
        """Take the results of one probe of both; return whether the kubelet should bypass the shim."""
        if not runtime_answers and not shim_answers:
            # The cause is not the shim, and a bypass would not help.
            self.restart(now_s)
            return False
        if not shim_answers:
            self._answers_since_s = None
        elif self._answers_since_s is None:
            self._answers_since_s = now_s
        if self._answers_since_s is not None and now_s - self._answers_since_s >= STEADY_S:
            self._served_s = now_s
        return not shim_answers and now_s - self._served_s >= UNSERVED_S
