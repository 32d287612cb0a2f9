// A CUDA device that computes nothing. A CPU build of torch has neither a guard that switches devices nor hooks that say
// that there is one, and autograd asks for both; hooks of a build for GPUs ask a driver. Fake tensors need no more of it.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

struct RehearsalGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return getDevice(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }
  // one stream, on which everything has already happened
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int = 0) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

struct RehearsalHooks final : at::CUDAHooksInterface {
  explicit RehearsalHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  long versionRuntimeCuDNN() const override { return 90000; }
};

struct RehearsalTimer final : c10d::Timer { // of DDP
  explicit RehearsalTimer(Device) {}
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

C10_REGISTER_GUARD_IMPL(CUDA, RehearsalGuard)

namespace at {
// torch looks for this name, which hooks of its own have too in a build for GPUs
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, ::RehearsalHooks);
}

namespace c10d {
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(TimerRegistry, c10::kCUDA, c10::REGISTRY_PREFERRED, ::RehearsalTimer);
}
