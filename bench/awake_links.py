"""Keeps the NVLinks between two GPUs awake: 1 MiB each 10 ms, 0.1 GB/s. Links sleep after 50 ms without traffic (`nvidia-smi nvlink
-gLowPwrInfo`), and those that are awake take power from a GPU at its limit: what a pushed prefill pays beside its bytes."""

import ctypes
import threading

BYTES, PERIOD_S = 1 << 20, 0.01
NON_BLOCKING = 1  # cudaStreamNonBlocking


class AwakeLinks:
    """links = AwakeLinks(0, 1), which opens both GPUs; then as often as wanted: with links: ..."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.cuda = ctypes.CDLL("libcudart.so.13")
        self.to, self.origin = self.allocate(target), self.allocate(source)
        self.check("cudaDeviceEnablePeerAccess", target, 0)
        self.stream = ctypes.c_void_p()
        self.check("cudaStreamCreateWithFlags", ctypes.byref(self.stream), NON_BLOCKING)

    def check(self, call, *arguments):
        status = getattr(self.cuda, call)(*arguments)
        if status != 0:
            raise RuntimeError(f"{call}: CUDA error {status}")

    def allocate(self, device):
        buffer = ctypes.c_void_p()
        self.check("cudaSetDevice", device)
        self.check("cudaMalloc", ctypes.byref(buffer), ctypes.c_size_t(BYTES))
        return buffer

    def trickle(self, ended):
        self.check("cudaSetDevice", self.source)
        while not ended.wait(PERIOD_S):
            self.check("cudaMemcpyPeerAsync", self.to, self.target, self.origin, self.source, ctypes.c_size_t(BYTES), self.stream)

    def __enter__(self):
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.trickle, args=[self.ended])
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
