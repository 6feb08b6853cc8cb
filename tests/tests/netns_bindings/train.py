"""Trains a small model with DistributedDataParallel, unchanged but for the name of the backend.

    train.py BACKEND RANK SIZE STORE [lost]

Prints the loss of each step. Data and weights come from a fixed seed. With `lost` the last rank ends in the
middle, and the others print what their backward pass raises.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SEED = 7
STEPS = 40
BATCH = 16


def collectives(rank, size):
    """What programs call beside DDP, of tensors of several types; exact results."""
    dtypes = [torch.int32, torch.int64, torch.uint8, torch.float16, torch.float32, torch.float64]
    if dist.get_backend() == "hostd":
        dtypes.append(torch.bfloat16)
    for dtype in dtypes:
        tensor = torch.arange(20, dtype=dtype) % 5 + rank
        dist.all_reduce(tensor)
        expected = (torch.arange(20) % 5 * size + size * (size - 1) // 2).to(dtype)
        assert torch.equal(tensor, expected), (dtype, tensor)
    if dist.get_backend() == "hostd":
        # Elements that do not lie one after the other: gloo answers that wrongly.
        columns = torch.zeros(4, 6)
        columns[:, 1] = rank + 1.0
        dist.all_reduce(columns[:, 1], op=dist.ReduceOp.MAX)
        assert columns[:, 1].tolist() == [size] * 4 and columns.sum() == 4 * size, columns
    tensor = torch.full((3,), float(rank))
    dist.reduce(tensor, dst=1)
    if rank == 1:
        assert tensor[0] == size * (size - 1) / 2, tensor
    dist.broadcast(tensor, src=1)
    assert tensor[0] == size * (size - 1) / 2, tensor
    parts = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([rank, rank * 10]))
    assert [part.tolist() for part in parts] == [[r, r * 10] for r in range(size)], parts
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank, "text": "x" * rank})
    assert things == [{"rank": r, "text": "x" * r} for r in range(size)], things
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    work.wait()
    dist.barrier()


def train(rank, size, lost):
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
    teacher = torch.randn(32, 8)
    # Other weights at each rank, which DDP makes those of rank 0.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += rank
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(SEED + rank)
    for step in range(STEPS):
        inputs = torch.randn(BATCH, 32, generator=generator)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ teacher)
        optimizer.zero_grad()
        if lost and step == STEPS // 2 and rank == size - 1:
            os._exit(0)
        try:
            loss.backward()
        except Exception as error:
            if not lost:
                raise
            print(f"in step {step}: {error}", flush=True)
            return
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"loss {mean.item() / size:.9g}", flush=True)


def main(backend, rank, size, store, lost):
    torch.set_num_threads(1)
    if backend == "hostd":
        import hostd.torch  # noqa: F401
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    collectives(rank, size)
    train(rank, size, lost)
    if not lost:
        dist.barrier()
    dist.destroy_process_group()
    print("trained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:] == ["lost"])
