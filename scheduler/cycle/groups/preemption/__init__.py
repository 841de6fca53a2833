"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O."""
