"""A rank of PyTorch over gloo: does what its Unix socket says, as ../crew.rs describes."""

import socket
import sys
import time

import torch
import torch.distributed as dist

path, rank, size, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
end = socket.socket(socket.AF_UNIX)
end.connect(path)
end.sendall(f"{rank}\n".encode())
for line in end.makefile("r"):
    count, calls = (int(word) for word in line.split())
    pattern = (torch.arange(count // 4) % 7 + 1).to(torch.float32)
    vector = pattern * (rank + 1)
    dist.all_reduce(vector)
    if not torch.equal(vector, pattern * (size * (size + 1) // 2)):
        end.sendall(b"the result is wrong\n")
        continue
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(vector)
    end.sendall(f"{time.perf_counter() - began:.9f}\n".encode())
