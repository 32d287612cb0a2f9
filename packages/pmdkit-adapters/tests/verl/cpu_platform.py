"""A CPU for verl's engines, through the point where verl takes other makers' devices."""

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import set_platform


class PlatformCPU(PlatformCUDA):
    """What verl's FSDP engine asks of a device, answered by the CPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def empty_cache(self):
        pass

    def communication_backend_name(self):
        return "gloo"


def use_cpu():
    set_platform(PlatformCPU())
