"""Stories: steps "verb words > answer" between bars; the method of that name plays a step and returns its answer."""


def play(scene: object, story: str) -> None:
    """Play a story; a step without ">" has the empty answer, which is also that of all that only happens."""
    for number, step in enumerate(story.split("|"), 1):
        event, _, expected = step.partition(">")
        verb, *words = event.split()
        answer = getattr(scene, verb)(*words) or ""
        assert answer == " ".join(expected.split()), f"step {number}, {step.strip()}: {answer}"
