"""The CRI shim: a proxy between kubelet and runtime that gives containers the devices of their pod's VFs.

What is decided is in plan/, which is pure; the modules here serve, call and read files. pb/ is generated from protos/.
"""
