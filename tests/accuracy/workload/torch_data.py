"""The real PyTorch DataLoader over this suite's stages. PyTorch itself does nothing on a device here."""

import torch
from stages import Chain
from torch.utils.data import DataLoader, Dataset

FOREVER = 10**9


class Batches(Dataset):
    """Each item is a batch, made by the stages."""

    def __init__(self, stages, count):
        self.chain, self.count = Chain(stages), count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.chain()), dtype=torch.uint8)


def loader(stages, workers, start, prefetch, persistent, epoch):
    """A DataLoader; without an epoch it ends never."""
    words = {}
    if workers:
        words = {"multiprocessing_context": start, "prefetch_factor": prefetch, "persistent_workers": persistent}
    return DataLoader(Batches(stages, epoch or FOREVER), batch_size=None, num_workers=workers, **words)
