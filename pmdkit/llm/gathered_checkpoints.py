"""The checkpoints of several processes: gathered by the main one, and written while the others go on."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from pmdkit.llm.weights import full_tensor
from pmdkit.observe import checkpoint, files
from pmdkit.observe.checkpoint import Checkpoints
from pmdkit.process_group import ProcessGroup


class GatheredCheckpoints(Checkpoints):
    """The checkpoints of a run with several processes, in a folder that all of them see.

    The main process gathers weights and optimizer and writes what one process would write: a checkpoint does not say
    how many made it. The step waits until its state is encoded on the main process's host; a thread writes it, and the
    next save waits for that. An error of the writing is raised by the next `wait` of the main process; the others
    notice that it is gone.
    """

    def __init__(self, folder: Path, process_group: ProcessGroup) -> None:
        super().__init__(folder)
        self.process_group = process_group
        self.writer = ThreadPoolExecutor(1, "checkpoint")
        self.writing: Future[None] | None = None

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """Begin checkpoints/step-N; a thread finishes it. Raises OSError if the save before it failed."""
        self.wait()
        main = self.process_group.is_main_process
        tensors, plain = checkpoint.split_state(state)
        contents: dict[str, bytes] = {}
        for part, held in tensors.items():
            gathered: dict[str, Tensor] = {}
            # in the same order in every process, and one at a time: an accelerator has no room for all
            for name, tensor in sorted(held.items()):
                whole = full_tensor(tensor.detach())
                if main:
                    gathered[name] = whole.cpu()
            if main:
                contents[f"{part}.safetensors"] = checkpoint.encode_tensors(gathered)
        if main:
            contents |= {"state.json": files.encode(plain), **(extra_files or {})}
            self.writing = self.writer.submit(self.write, step, contents, keep)

    def wait(self) -> None:
        """Wait until the last save is acknowledged; raises the error if it failed."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """Load as one process does, in every process; only the main one may use the values of tensors."""
        step, state, warnings = super().load_newest() if self.process_group.is_main_process else (0, {}, [])
        step = self.process_group.broadcast_object(step)
        if step and not self.process_group.is_main_process:
            state = checkpoint.open_step(self.folder / f"step-{step}")
        return step, state, warnings
