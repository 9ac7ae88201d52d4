"""The numbers of the input pipeline: threads, batch size, queue capacities. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses

from slimexp.errors import UserError

__all__ = ["QUEUE_NAMES", "PipelineSettings", "QueueSettings"]

QUEUE_NAMES = ("filename", "read", "prefetch", "batch")

# Far above what any machine can use, and far below where the operating system refuses to start a thread.
_MAX_THREADS = 1024


@dataclasses.dataclass(frozen=True)
class QueueSettings:
    """One bounded queue, with its capacity worked out.

    Attributes:
        name: One of `QUEUE_NAMES`.
        capacity: The most elements it holds.
        unit: What one element is: `names`, `images` or `batches`.
    """

    name: str
    capacity: int
    unit: str


@dataclasses.dataclass(frozen=True)
class PipelineSettings:
    """How the four-queue pipeline is laid out. All counts are totals for the process, not per replica.

    Attributes:
        threads: Threads that decode and finish images (crop, resize, flip, colour, mean); 1 to 1024.
        readers: Threads that read files; 1 to 1024.
        batch_size: Examples in a global batch; each replica gets `batch_size / num_replicas` of them.
        filename_capacity: File names waiting for a reader. None: 20 batches' worth, which is a few kilobytes.
        read_capacity: Files' contents, encoded, waiting for a preprocessing thread. None: one batch's worth, or twice
            the larger of `readers` and `threads` where that is more; for a source that is read in sequence 20 batches'
            worth, as in TF-Slim.
        read_min_after_dequeue: Of the read queue's capacity, for sources that can only be read in sequence: the
            records that are kept back while training, so that each that is taken is a random one of so many. None: 10
            batches' worth, or half the read queue's capacity where that is given, and a batch's worth of room is left.
            Lists are shuffled exactly, so for them nothing is kept back.
        prefetch_capacity: Finished images (float32) waiting to be batched. None: 2 batches' worth. A 224 x 224 image
            takes 588 KiB, a 299 x 299 one 1.02 MiB.
        batch_capacity: Global batches waiting for the training step. None: 2.
        decoder: `tensorflow`: TensorFlow's ops; `native`: our own op, which must have been built or be possible to
            build; `auto`: the native one where it can be had and does what the preprocessing needs.
        scaled_decode: Whether photos much larger than needed are decoded at a half, a quarter or an eighth of their
            size; the native op always does that.
        exif: Whether photos are turned as their EXIF orientation says.
        shuffle: Whether training visits the examples in another random order in each epoch. Evaluation never does.
    """

    threads: int = 4
    readers: int = 4
    batch_size: int = 32
    filename_capacity: int | None = None
    read_capacity: int | None = None
    read_min_after_dequeue: int | None = None
    prefetch_capacity: int | None = None
    batch_capacity: int | None = None
    shuffle: bool = True
    decoder: str = "auto"
    scaled_decode: bool = True
    exif: bool = True

    def queues(self) -> dict[str, QueueSettings]:
        """Works out the four queues, in the order in which an example passes them.

        Returns:
            A dict from the names in `QUEUE_NAMES` to the queue's settings.
        """
        batch = self.batch_size
        defaults = {
            "filename": (20 * batch, "names"),
            "read": (max(batch, 2 * self.readers, 2 * self.threads), "images"),
            "prefetch": (2 * batch, "images"),
            "batch": (2, "batches"),
        }
        queues = {}
        for name, (default, unit) in defaults.items():
            capacity = getattr(self, f"{name}_capacity")
            queues[name] = QueueSettings(name, default if capacity is None else capacity, unit)
        return queues

    def fitted(self, *, is_sequential: bool, is_training: bool) -> PipelineSettings:
        """Works out the read queue for a source; of settings that are fitted already nothing is changed.

        Args:
            is_sequential: Whether the source can only be read in sequence.
            is_training: Whether the stream is for training; else nothing is shuffled.
        """
        if not (is_sequential and is_training and self.shuffle):
            return dataclasses.replace(self, read_min_after_dequeue=None)
        batch, capacity, kept = self.batch_size, self.read_capacity, self.read_min_after_dequeue
        if kept is None:
            kept = 10 * batch  # Whatever the capacity: the order of the records follows from it.
        if capacity is None:
            capacity = kept + max(10 * batch, 2 * self.readers, 2 * self.threads)
        return dataclasses.replace(self, read_capacity=capacity, read_min_after_dequeue=kept)

    def check(
        self, num_examples: int, num_replicas: int = 1, *, is_training: bool = True, is_sequential: bool = False
    ) -> None:
        """Refuses settings that cannot work, or a queue that defeats itself.

        A batch is taken from the prefetch queue at once, so that queue has to hold one. The filename and read queues
        may be as small as 1: their consumers take one element at a time, and producers keep finished ones meanwhile.
        Of a read queue with a minimum, more than a batch has to be free to be taken.

        Args:
            num_examples: Examples in the split.
            num_replicas: Replicas that a batch is divided among.
            is_training: Whether the stream is for training. For evaluation the last batch is padded, so there may be
                fewer examples than a batch holds.
            is_sequential: Whether the source can only be read in sequence.

        Raises:
            UserError: If a value is refused; the message lists every one, each with its rule and the way out.
        """
        problems = self._count_problems()
        if not problems:  # The rules below divide by these and compare them.
            problems = self._batch_problems(num_examples, num_replicas, is_training) + self._queue_problems()
            if is_training:
                problems += self._minimum_problems(num_examples, num_replicas, is_sequential)
        if problems:
            raise UserError("\n".join(problems))

    def _count_problems(self) -> list[str]:
        problems = []
        counts = {f"pipeline.{name}": getattr(self, name) for name in ("threads", "readers", "batch_size")}
        for name in QUEUE_NAMES:
            capacity = getattr(self, f"{name}_capacity")
            if capacity is not None:
                counts[f"pipeline.queues.{name}.capacity"] = capacity
        kept = self.read_min_after_dequeue
        if kept is not None and (isinstance(kept, bool) or not isinstance(kept, int) or kept < 0):
            problems.append(
                f"pipeline.queues.read.min_after_dequeue={kept!r} is refused: it must be a whole number, 0 or more."
            )
        for key, value in counts.items():
            # bool is an int to Python; `threads: true` in a YAML file is a slip all the same.
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                problems.append(f"{key}={value!r} is refused: it must be a whole number of at least 1.")
            elif value > _MAX_THREADS and key in ("pipeline.threads", "pipeline.readers"):
                problems.append(
                    f"{key}={value} is refused: it must be at most {_MAX_THREADS}, as each is a thread of its own. "
                    "The number of processor cores is a good start."
                )
        return problems

    def _batch_problems(self, num_examples: int, num_replicas: int, is_training: bool) -> list[str]:
        problems = []
        batch = self.batch_size
        if num_examples < 1:
            problems.append("There are no examples to read. Check the list file or folder that the dataset names.")
        elif is_training and num_examples < batch:
            fits = num_examples // num_replicas * num_replicas
            advice = (
                f"Set pipeline.batch_size={fits} or less"
                if fits
                else "Use no more replicas (devices) than there are examples"
            )
            problems.append(
                f"pipeline.batch_size={batch} is more than the {num_examples} training examples, so a batch would "
                f"hold the same image twice. {advice}, or add examples."
            )
        if batch % num_replicas:
            lower = batch // num_replicas * num_replicas
            either = " or ".join(str(size) for size in (lower, lower + num_replicas) if size)
            problems.append(
                f"pipeline.batch_size={batch} cannot be divided evenly among {num_replicas} replicas; it counts the "
                f"images of all replicas together. Set it to {either}."
            )
        return problems

    def _queue_problems(self) -> list[str]:
        capacity = self.queues()["prefetch"].capacity
        if capacity >= self.batch_size:
            return []
        problem = (
            f"pipeline.queues.prefetch.capacity={capacity} defeats itself: a batch takes {self.batch_size} images at "
            "once (pipeline.batch_size), so each would have to wait for the preprocessing threads, however far they "
            f"could have been ahead. Set it to {self.batch_size} or more, or leave it out for twice the batch size."
        )
        return [problem]

    def _capacity_problems(self) -> list[str]:
        """Refuses a read queue that has no room for the minimum that is kept if none is set."""
        kept, capacity, batch = 10 * self.batch_size, self.read_capacity, self.batch_size
        if capacity is None or capacity - kept > batch:
            return []
        problem = (
            f"pipeline.queues.read.capacity={capacity} is too small: {kept} records are kept back for shuffling, and a "
            f"batch takes {batch} at once. Set it to {kept + 2 * batch} or more, or also set "
            f"pipeline.queues.read.min_after_dequeue, to {max(capacity - 2 * batch, 0)} or less. (The order of the "
            "records follows from the minimum, so it is not changed on the quiet.)"
        )
        return [problem]

    def _minimum_problems(self, num_examples: int, num_replicas: int, is_sequential: bool) -> list[str]:
        kept, batch = self.read_min_after_dequeue, self.batch_size
        if kept is None:
            return self._capacity_problems() if is_sequential and self.shuffle else []
        key = f"pipeline.queues.read.min_after_dequeue={kept}"
        if not is_sequential:
            reason = "this dataset is a list, which is shuffled exactly, without a buffer, so that keeping images back"
            return [f"{key} is refused: {reason} would only cost memory. Leave it out; it is for datasets of records."]
        if not self.shuffle and kept:
            reason = "pipeline.shuffle=false, and records are kept back for shuffling alone"
            return [f"{key} is refused: {reason}. Leave one of them out."]
        problems = []
        if kept >= num_examples > 0:
            fits = max(num_examples - batch, 0)
            problems.append(
                f"{key} can never be met: there are {num_examples} training examples, and a queue that waits for "
                f"{kept} to stay back would never give one out. Set it to {fits} or less."
            )
        capacity = self.read_capacity
        if capacity is not None and capacity - kept <= batch:
            clones = f", {batch // num_replicas} for each of {num_replicas} replicas" if num_replicas > 1 else ""
            room = max(capacity - kept, 0)
            problems.append(
                f"{key} with pipeline.queues.read.capacity={capacity} defeats itself: {capacity} - {kept} leaves "
                f"{room} to take, and a batch takes {batch} at once{clones} (pipeline.batch_size). "
                f"Then the queue is "
                "down to its minimum after each batch, and the next one waits for the readers as if there were none. "
                f"Set the capacity to {kept + 2 * batch} or more, or the minimum to {max(capacity - 2 * batch, 0)} or "
                "less" + ("." if capacity >= 2 * batch else ", and the capacity to twice the batch at the least.")
            )
        return problems
