"""Results that take the memory of inputs: only where nobody asks for those, and nothing is lost in failures."""

from __future__ import annotations

import _thread
import random
import sys
import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor, dtypes, no_grad
from intaglio.core.errors import CompileError, DeviceError, InternalError
from intaglio.engine import devices, form, realize
from intaglio.engine.devices import device_of
from intaglio.ir.node import make_known
from intaglio.ops.elementwise import EXP, SIN
from intaglio.runtime import launch, pool
from intaglio.storage import flush
from intaglio.storage.standing import plans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHAPE: Final = (4, 6)
BYTES: Final = 4 * 24


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Results of every size may take the memory of inputs."""
    monkeypatch.setattr(form, "LEAST", 1)
    plans.clear()
    yield
    plans.clear()


def array(seed: int = 0) -> np.ndarray:
    """Numbers."""
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def held(seed: int = 0) -> list[Tensor]:
    """One tensor in memory, which nobody but the list holds."""
    return [Tensor(array(seed)).realize()]


def allocated(work: Callable[[], object]) -> int:
    """The bytes that some work has in use at most, beside those before it."""
    device_of("CPU").allocator.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    work()
    return GlobalCounters.peak - before


def taken(work: Callable[[], Tensor], value: np.ndarray, *, most: int = 0) -> bool:
    """Whether a right result takes no memory of its own, as the second time that it is computed, too."""
    found: list[Tensor] = []
    nbytes = allocated(lambda: found.append(work().realize()))
    assert np.allclose(found[0].numpy(), value, rtol=1e-5)
    return nbytes <= most


def test_a_result_takes_the_memory_of_a_dead_input() -> None:
    x = held()
    assert taken(lambda: x.pop() * 2 + 1, array() * 2 + 1)
    x, y = held(), held(1)
    assert taken(lambda: x.pop().exp() + y.pop(), np.exp(array()) + array(1))


def test_one_of_two_dead_inputs_serves_each_result() -> None:
    x, y = held(), held(1)

    def both() -> None:
        a, b = x.pop(), y.pop()
        sums, differences = a + b, a * 2
        del a, b
        sums.realize(differences)

    assert allocated(both) == BYTES  # both results read the first input, which neither may write over
    x, y = held(), held(1)
    z = y[0]
    assert taken(lambda: z + x.pop(), array(1) + array())  # the second input, since the first is alive
    assert np.array_equal(z.numpy(), array(1))


def test_all_of_a_list_are_written_over() -> None:
    parameters = [Tensor(array(k)).realize() for k in range(5)]
    slopes = [Tensor(array(10 + k)).realize() for k in range(5)]

    def step() -> None:
        for k, slope in enumerate(slopes):
            parameters[k] = parameters[k] - 0.5 * slope
        parameters[0].realize(*parameters[1:])

    assert allocated(step) == allocated(step) == 0
    for k, parameter in enumerate(parameters):
        assert np.allclose(parameter.numpy(), array(k) - array(10 + k), rtol=1e-5, atol=1e-6)


def test_what_is_between_kernels_does_not_lie_in_the_result() -> None:
    numbers = np.random.default_rng(0).standard_normal((2, 64, 64), dtype=np.float32)
    x, other = [Tensor(numbers[0]).realize()], Tensor(numbers[1]).realize()
    expected = numbers[0] + numbers[1].cumsum(0).cumsum(1)
    assert taken(lambda: x.pop() + other.cumsum(0).cumsum(1), expected, most=2 * other.nbytes)
    assert GlobalCounters.kernel_count == 3  # the first sums would lie where the result is, if that had its own


def test_reading_a_result_counts_as_computing_it() -> None:
    x = held()
    y = x.pop() * 3
    assert allocated(y.numpy) == 0
    assert np.allclose(y.numpy(), array() * 3)
    assert np.allclose((y + 1).numpy(), array() * 3 + 1)


def test_other_places_of_the_input_are_read_in_time() -> None:
    x = [Tensor(np.arange(25, dtype=np.float32).reshape(5, 5)).realize()]
    expected = np.arange(25).reshape(5, 5)
    y = (lambda x: x + x.T + x.flip(0))(x.pop()).realize()
    assert np.array_equal(y.numpy(), expected + expected.T + expected[::-1])


@pytest.mark.parametrize("row", range(4))
def test_a_row_that_all_rows_read_is_not_written_over(row: int) -> None:
    x = held()  # whose row counts as a buffer of its own
    assert not taken(lambda: (lambda x: x * x[row])(x.pop()), array() * array()[row])


def test_the_interpreter_writes_over_inputs() -> None:
    x = [Tensor(array(), device="PYTHON").realize()]
    address = x[0].data_ptr()
    y = (x.pop() * 2 + 1).realize()
    assert y.data_ptr() == address
    assert np.allclose(y.numpy(), array() * 2 + 1)


def test_a_part_of_an_input_is_not_taken() -> None:
    x = held()
    assert not taken(lambda: x.pop()[1:] * 2, array()[1:] * 2)
    x = held()
    assert not taken(lambda: x.pop()[:3] * 2, array()[:3] * 2)
    wide = [Tensor(array().astype(np.float64)).realize()]
    assert not taken(lambda: wide.pop().float() * 2, array() * 2)


# -- inputs that somebody may still ask for


def _handle(x: Tensor) -> object:
    return x


def _view(x: Tensor) -> object:
    return x[1:]


def _row_in_a_closure(x: Tensor) -> object:
    return lambda row=x[0]: row


def _clone(x: Tensor) -> object:
    return x.clone()


def _detached(x: Tensor) -> object:
    return x.detach()


def _pending_value(x: Tensor) -> object:
    return x + 1


def _same_value(x: Tensor) -> object:
    return (x * 2) * 3  # which holds the result, too


def _element(x: Tensor) -> object:
    return x[0, 1] * 2


def _write(x: Tensor) -> object:
    y = Tensor.zeros(*SHAPE).realize()
    y[1:] = x[1:] * 1.5
    return y


def _element_write(x: Tensor) -> object:
    y = Tensor.zeros(3).realize()
    y[1] = x[1, 1] * 2
    return y


def _kernel(x: Tensor) -> object:
    return (x + 3).kernelize()


def _node(x: Tensor) -> object:
    return x._value()


def _buffer(x: Tensor) -> object:
    storage = x._storage
    assert storage is not None
    return storage.ref


def _memory(x: Tensor) -> object:
    storage = x._storage
    assert storage is not None
    assert storage.ref is not None
    return realize.buffer_of(storage.ref)


def _generator(x: Tensor) -> object:
    def rows() -> Iterator[Tensor]:
        for k in range(len(x)):
            yield x[k]

    found = rows()
    next(found)
    return found


def _shared(x: Tensor) -> object:
    return x.numpy(copy=False)


HOLDERS: Final = (
    _handle,
    _view,
    _row_in_a_closure,
    _clone,
    _detached,
    _pending_value,
    _same_value,
    _element,
    _write,
    _element_write,
    _kernel,
    _node,
    _buffer,
    _memory,
    _generator,
    _shared,
)


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
def test_what_somebody_holds_is_not_written_over(holder: Callable[[Tensor], object]) -> None:
    x = held()
    address = x[0].data_ptr()
    other = holder(x[0])
    y = x.pop() * 2
    y.realize()
    assert y.data_ptr() != address
    assert np.allclose(y.numpy(), array() * 2)
    if isinstance(other, Tensor):
        again = holder(Tensor(array()))
        assert isinstance(again, Tensor)
        assert np.allclose(other.numpy(), again.numpy())


def test_what_a_step_on_the_way_is_held_for_is_not_lost() -> None:
    x = held()
    middle = x.pop() * 2
    y = (middle + 1).realize()
    assert np.allclose(y.numpy(), array() * 2 + 1)
    assert np.allclose(middle.numpy(), array() * 2)
    assert np.allclose((middle - 1).numpy(), array() * 2 - 1)


def test_a_value_with_a_place_is_an_input_like_any_other() -> None:
    y = held().pop() * 2
    z = y + 1
    y.realize()
    assert np.allclose((y - 1).numpy(), array() * 2 - 1)
    del y
    assert taken(lambda: z, array() * 2 + 1)


def test_a_value_wanted_twice_is_computed_once() -> None:
    x = held()
    y = x.pop() * 2
    z = y + 0.0
    y.realize(y, z)
    assert np.allclose(y.numpy(), array() * 2)
    assert np.allclose(z.numpy(), array() * 2)


def test_a_written_result_keeps_what_others_ask_for() -> None:
    y = held().pop() * 2
    z = y + 1
    y.realize()
    y[0] = 7.0
    assert np.allclose(z.numpy(), array() * 2 + 1)
    assert np.allclose(y.numpy()[0], 7)


def test_gradients_have_their_inputs() -> None:
    x, w = held(), Tensor(array(1), requires_grad=True).realize()
    y = x.pop() * w
    y.realize()
    z = y.exp() * 2
    del y
    z.realize()
    z.sum().backward()
    assert w.grad is not None
    assert np.allclose(w.grad.numpy(), 2 * array() * np.exp(array() * array(1)), rtol=1e-4)


def test_a_parameter_is_written_over_outside_of_gradients() -> None:
    w = [Tensor(array(), requires_grad=True).realize()]
    slope = Tensor(array(1)).realize()
    with no_grad():
        assert taken(lambda: w.pop() - slope, array() - array(1))


def test_a_tensor_in_another_thread_stays() -> None:
    x = held()
    begun, done, seen = threading.Event(), threading.Event(), []

    def read(mine: Tensor) -> None:
        begun.set()
        done.wait(10)
        seen.append(mine.numpy())

    thread = threading.Thread(target=read, args=(x[0],))
    thread.start()
    begun.wait(10)
    y = (x.pop() * 2).realize()
    done.set()
    thread.join()
    assert np.array_equal(seen[0], array())
    assert np.allclose(y.numpy(), array() * 2)


def test_threads_that_compute_with_the_same_tensors_see_no_others_numbers() -> None:
    shared: dict[int, tuple[Tensor, float]] = {}
    wrong: list[tuple[int, int]] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        own = [(Tensor(np.full(64, seed, np.float32)).realize(), float(seed))]
        for turn in range(300):
            kind, place = draw.randrange(5), draw.randrange(len(own))
            x, v = own[place]
            if kind == 0:
                own[place] = (x * 2 - 1, v * 2 - 1) if abs(v) < 1e4 else (x * 0 + 3, 3.0)
            elif kind == 1:
                own[place] = x.realize(), v
            elif kind == 2:
                shared[draw.randrange(3)] = x, v
            elif kind == 3:
                y, w = shared.get(draw.randrange(3), (x, v))
                own.append((y + 1, w + 1))
                del y
            elif len(own) > 1:
                del own[place]
            if not draw.randrange(4) and not (x.numpy() == v).all():
                wrong.append((seed, turn))
            del x

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def test_memory_of_others_and_files_stay(tmp_path: Path) -> None:
    given, path = array(), tmp_path / "numbers"
    array().tofile(path)
    x = [Tensor.from_numpy(given), Tensor(path).bitcast("float32").reshape(*SHAPE).to("CPU")]
    for _ in range(2):
        y = (x.pop() * 2).realize()
        assert np.allclose(y.numpy(), array() * 2)
    assert np.array_equal(given, array())
    assert np.array_equal(np.fromfile(path, np.float32).reshape(SHAPE), array())


def test_inputs_that_two_values_share_are_counted_once() -> None:
    x = held()
    middle = x.pop() * 2
    inputs = (middle.to_node(),)
    both = [Tensor._from_node(make_known(op, inputs, dtypes.float32, SHAPE), "CPU") for op in (EXP, SIN)]
    y = both.pop() + both.pop()
    del inputs
    y.realize()
    assert np.allclose(middle.numpy(), array() * 2)
    assert np.allclose(y.numpy(), np.exp(array() * 2) + np.sin(array() * 2), rtol=1e-5)


def test_views_of_values_on_the_way_are_seen_through() -> None:
    x = held()
    y = x.pop() * 2
    z = y.reshape(6, 4) + 1
    del y
    assert taken(lambda: z, array().reshape(6, 4) * 2 + 1)
    x = held()
    y = x.pop() * 2
    z = (y.reshape(6, 4) + 1).realize()
    assert np.allclose(y.numpy(), array() * 2)
    assert np.allclose(z.numpy(), array().reshape(6, 4) * 2 + 1)


# -- failures


def test_a_flush_without_memory_loses_nothing() -> None:
    x = held()
    y = x.pop() * 2
    z = Tensor.ones(1 << 16) * 1.5
    with Context(memory_bytes=device_of("CPU").allocator.used + 1024), pytest.raises(DeviceError):
        y.realize(z)
    assert np.allclose(y.numpy(), array() * 2)


@pytest.mark.parametrize("step", ["_words", "_provide", "_inherit", "_run"])
def test_an_interrupt_loses_nothing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (held().pop() * 2).realize()
    x = held()
    y = x.pop() * 2
    known = getattr(realize, step)

    def interrupted(*args: object) -> object:
        found = known(*args)
        _thread.interrupt_main()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(realize, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.realize()
    assert np.allclose(y.numpy(), array() * 2)
    assert np.allclose((y + 1).numpy(), array() * 2 + 1)


def test_an_input_that_is_gone_is_asked_for_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = held()
    monkeypatch.setattr(flush, "spent", lambda plan, *_: plan.form.heirs)  # as if its holders were not seen
    y = (x * 2).realize()
    assert np.allclose(y.numpy(), array() * 2)
    with pytest.raises(InternalError, match="has no bytes"):
        x.numpy()
    with pytest.raises(InternalError, match="has no bytes"):
        (x.exp() + y).realize()


# -- any program


@pytest.mark.parametrize("seed", range(300))
def test_random_programs_of_handles_views_and_deletions(seed: int) -> None:
    draw = random.Random(seed)
    pairs: list[tuple[Tensor, np.ndarray]] = []

    def pick() -> tuple[Tensor, np.ndarray]:
        return pairs[draw.randrange(len(pairs))]

    def fresh() -> tuple[Tensor, np.ndarray]:
        values = np.random.default_rng(draw.randrange(1000)).integers(-4, 5, SHAPE).astype(np.float32)
        return Tensor(values).realize(), values

    def change() -> None:
        (x, a), kind = pick(), draw.randrange(9)
        if kind == 0:
            pairs.append((x * 2 - 1, a * 2 - 1))
        elif kind == 1:
            y, b = pick()
            pairs.append((x + y, a + b))
        elif kind == 2:
            pairs.append((x.flip(0), a[::-1]))  # a view, as in NumPy
        elif kind == 3:
            pairs.append((x - x.sum(1, keepdim=True), a - a.sum(1, keepdims=True)))
        elif kind == 4:
            y, b = pick()
            pairs.append(((x > y).where(x, y * 0.5), np.where(a > b, a, b * 0.5)))
        elif kind == 5:
            pairs.append((x.reshape(6, 4).permute(1, 0).reshape(*SHAPE), a.reshape(6, 4).T.reshape(SHAPE)))
        elif kind == 6:
            row = draw.randrange(3)
            x[row : row + 2] = x[row + 1 : row + 3] * 2
            a[row : row + 2] = a[row + 1 : row + 3] * 2
        elif kind == 7:
            pairs.append((x.clone(), a.copy()))
        else:
            pairs.append((x.abs() + x.reshape(24).reshape(*SHAPE), np.abs(a) + a))

    pairs += [fresh() for _ in range(3)]
    for _ in range(draw.randrange(4, 40)):
        kind = draw.random()
        if kind < 0.45:
            change()
        elif kind < 0.65 and len(pairs) > 1:
            del pairs[draw.randrange(len(pairs))]
        elif kind < 0.9:
            chosen = [x for x, _ in draw.sample(pairs, draw.randrange(1, len(pairs) + 1))]
            chosen[0].realize(*chosen[1:])
            del chosen
        elif kind < 0.95:
            pairs.append(fresh())
        else:
            x, a = pick()
            assert np.array_equal(x.numpy(), a)
            del x
        pairs[:] = [pair if np.abs(pair[1]).max() <= 1e5 else fresh() for pair in pairs]  # larger ones are not exact
        x = None
    for x, a in pairs:
        assert np.array_equal(x.numpy(), a)


def test_an_input_that_lived_on_again_and_again_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    spent = flush.spent
    monkeypatch.setattr(flush, "spent", lambda *given: asked.append(1) or spent(*given))
    x, y = held(), held(1)
    for _ in range(6):
        assert np.allclose((x[0] * 2 + 1).numpy(), array() * 2 + 1)
    assert len(asked) == form.PATIENCE
    assert taken(lambda: y.pop() * 2 + 1, array(1) * 2 + 1)  # another one is
    assert not taken(lambda: x[0] * 2 + 1, array() * 2 + 1)
    assert np.array_equal(x[0].numpy(), array())


def fresh(patch: pytest.MonkeyPatch) -> pool.Pool:
    """A pool that has no worker and no scratch, in place of the one that there is."""
    own = pool.Pool()
    patch.setattr(devices, "pool", own)
    patch.setattr(launch, "pool", own)
    return own


def no_pages(_: int) -> object:
    """A system without memory."""
    raise OSError(12, "Cannot allocate memory")


def no_code(_: object) -> object:
    """A pool whose code cannot be compiled."""
    raise CompileError("llvm: as if it refused", "", "")


@pytest.mark.parametrize("debug", [0, 2])
@pytest.mark.parametrize(
    ("name", "fails", "error"),
    [("anonymous", no_pages, "scratch: the system has no "), ("native", no_code, "llvm")],
)
def test_what_kernels_need_is_there_before_the_first_is_run(
    monkeypatch: pytest.MonkeyPatch, debug: int, name: str, fails: Callable[..., object], error: str
) -> None:
    m, t = (Tensor(np.full((size, size), 2, np.float32)).realize() for size in (1024, 8))
    with Context(threads=2, debug=debug):
        t[0] = t[0] + 1
        parts = (m + t.sum()).softmax(0)
        with monkeypatch.context() as patch:
            fresh(patch)
            patch.setattr(pool, name, fails)
            with pytest.raises((DeviceError, CompileError), match=error):
                parts.realize()
        assert np.array_equal(parts.numpy(), np.full((1024, 1024), 2.0**-10, np.float32))
        assert t[0].tolist() == [3] * 8


def test_a_stretch_after_another_device_is_made_ready_before_the_first_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    m, t = (Tensor(np.full((size, size), 2, np.float32)).realize() for size in (1024, 8))
    t[0] = t[0] + 1
    product = m @ m + t.to("PYTHON").sum().to("CPU")
    with monkeypatch.context() as patch:
        fresh(patch)
        patch.setattr(pool, "anonymous", no_pages)
        with pytest.raises(DeviceError, match="scratch: "):
            product.realize()
    assert np.array_equal(product.numpy(), np.full((1024, 1024), 4 * 1024 + 136, np.float32))
    assert t[0].tolist() == [3] * 8


def test_a_worker_without_memory_leaves_its_kernel_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    m, t = (Tensor(np.full((size, size), 2, np.float32)).realize() for size in (1024, 8))
    with Context(threads=2, debug=2):
        t[0] = t[0] + 1
        product = m @ m + t.sum()
        with monkeypatch.context() as patch:
            fresh(patch).provide(1 << 22)
            patch.setattr(pool, "anonymous", no_pages)
            assert np.array_equal(product.numpy(), np.full((1024, 1024), 4 * 1024 + 136, np.float32))
        assert t[0].tolist() == [3] * 8
