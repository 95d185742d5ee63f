"""The real PyTorch DataLoader over this suite's stages. PyTorch itself does nothing on a device here."""

import ctypes

import torch
from stages import Chain
from torch.utils.data import DataLoader, Dataset

FOREVER = 10**9


class Batches(Dataset):
    """Each item is a batch, made by the stages."""

    def __init__(self, stages, count, pin):
        self.chain, self.count, self.pin = Chain(stages), count, pin

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        data = torch.frombuffer(bytearray(self.chain()), dtype=torch.uint8)
        return Pinned(data) if self.pin else data


class Pinned:
    """A batch that the loader's own thread copies into page-locked memory of the simulated driver, which it keeps as PyTorch does."""

    driver, kept = None, {}

    def __init__(self, data):
        self.data = data

    def pin_memory(self):
        size = self.data.numel()
        if size not in self.kept:
            self.kept[size] = self.driver.page_locked(size)
        ctypes.memmove(self.kept[size], self.data.data_ptr(), size)
        return self


def accelerator():
    """Shows the DataLoader an accelerator, without which it pins nothing. PyTorch's runtime finds none: it asks a driver for
    tables that are documented nowhere, and that the simulated one does not have.
    """
    from cuda import Driver

    def use(index):
        # In the thread that pins, whose context it becomes.
        Pinned.driver = Driver(index)

    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = use


def loader(stages, workers, start, prefetch, persistent, epoch, pin):
    """A DataLoader; without an epoch it ends never."""
    words = {}
    if workers:
        words = {"multiprocessing_context": start, "prefetch_factor": prefetch, "persistent_workers": persistent}
    if pin:
        accelerator()
    return DataLoader(Batches(stages, epoch or FOREVER, pin), batch_size=None, num_workers=workers, pin_memory=pin, **words)
