"""Device tables -> execution plan: walk the lanes as the machine would, and keep what was computed.

Every SM's compute lane runs until a packet that it needs is not there; its epilogue lane runs as far as there are
products for it. If no lane can go on, the Program deadlocks, and the error names a task that waits. Which of the
possible orders is walked does not matter to a Program without races, which is for the validator to prove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amk.errors import RejectedProgramError
from amk.runtime.cpu.chains import Chain, Chains, Product
from amk.runtime.cpu.mailbox import BOTH, INDEX_BITS, ONE, SEVERAL, Mailbox, MailboxError, Range, codes_of
from amk.runtime.cpu.nodes import Attention, Plan
from amk.runtime.cpu.queues import Instruction, Queues, match_queues
from amk.runtime.cpu.values import SIGNAL, Shape, Unit, Values
from schedule_ir.layout import TILE_ROWS
from schedule_ir.op import Lane
from schedule_ir.ops.attention import PROJECTION
from schedule_ir.ops.token import BEST_WORDS
from schedule_ir.program import Program, Section

NOTHING = -1


def make_plan(program: Program) -> Plan:
    """The plan of one token step. Raises RejectedProgramError if the lanes deadlock or do not fit together."""
    return _Walk(program).run()


@dataclass
class _Sm:
    """What an SM holds, and how far its lanes are. `products` are in the reduction queue's order.

    `new_rows`: by split, the K/V head whose new row is in shared memory if that split is the last active one.
    """

    queues: Queues
    residual: int = NOTHING
    x: int = NOTHING
    next_compute: int = 0
    next_epilogue: int = 0
    products: list[Chain] = field(default_factory=list)
    new_rows: dict[int, int] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.next_compute == len(self.queues.compute) and self.next_epilogue == len(self.queues.epilogue)

    def begin(self, queues: Queues) -> None:
        """Start a section; shared memory keeps its contents."""
        self.queues, self.next_compute, self.next_epilogue, self.products = queues, 0, 0, []


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program, self.config = program, program.config
        self.values = Values(program.config["head_dim"])
        self.mailbox = Mailbox(program.config["packets"])
        self.chains = Chains(program)
        self.appended: set[tuple[int, int]] = set()
        self.sms = [_Sm(Queues([], [], [])) for _ in range(program.sms)]
        # A compute task returns the packets that it has to wait for, or None when it is done.
        self.compute: dict[str, Callable[[_Sm, Instruction], Range | None]] = {
            "embed_norm": self._embed_norm, "add_norm": self._add_norm, "add_post_norm": self._add_norm,
            "gather": self._gather, "gemv": self._gemv, "gemv_park": self._gemv_park,
            "gemv_resume": self._gemv_resume, "attend": self._attend, "append": self._append,
            "combine": self._combine, "sample": self._sample,
        }  # fmt: skip
        self.epilogue: dict[str, Callable[[_Sm, Instruction], None]] = {
            "publish": self._publish, "head": self._head, "publish_best": self._publish_best,
            "kv_release": self._kv_release,
        }  # fmt: skip

    def run(self) -> Plan:
        self._section(Section.BODY)
        self._check_attention()
        self._check_acquires()
        self.values.begin_head()
        self._section(Section.HEAD)
        return self.values.finish(self.config["vocab"])

    # The scheduler

    def _section(self, section: Section) -> None:
        for sm, state in enumerate(self.sms):
            state.begin(match_queues(self.program, sm, section))
        waiting = [state for state in self.sms if not state.done]
        while waiting:
            progressed = [self._advance(state) for state in waiting]
            if not any(progressed):
                raise RejectedProgramError(self._deadlock(waiting))
            waiting = [state for state in waiting if not state.done]
        self.chains.check_closed()

    def _advance(self, state: _Sm) -> bool:
        before = state.next_compute, state.next_epilogue
        tasks = state.queues.compute
        while state.next_compute < len(tasks) and self._execute(state, tasks[state.next_compute]) is None:
            state.next_compute += 1
        tasks, due = state.queues.epilogue, state.queues.due
        while state.next_epilogue < len(tasks) and due[state.next_epilogue] <= len(state.products):
            self._execute(state, tasks[state.next_epilogue])
            state.next_epilogue += 1
        return (state.next_compute, state.next_epilogue) != before

    def _execute(self, state: _Sm, task: Instruction) -> Range | None:
        try:
            if task.op in self.compute:
                return self.compute[task.op](state, task)
            self.epilogue[task.op](state, task)
            return None
        except (MailboxError, RejectedProgramError) as error:
            raise RejectedProgramError(f"{task}: {error}") from error
        except KeyError as error:
            raise RejectedProgramError(f"{task}: the CPU runtime has no op {error}") from error

    def _deadlock(self, waiting: list[_Sm]) -> str:
        state = min(waiting, key=lambda s: (s.next_compute, s.next_epilogue))
        task = state.queues.compute[state.next_compute]
        needed = self._execute(state, task)
        assert needed is not None
        return (
            f"{task}: waits forever for {needed}: no task that can run publishes packet {self.mailbox.missing(needed)}"
        )

    # Compute lane

    def _first_missing(self, ranges: list[Range], worlds: slice = BOTH) -> Range | None:
        return next((where for where in ranges if not self.mailbox.ready(where, worlds)), None)

    def _embed_norm(self, state: _Sm, task: Instruction) -> Range | None:
        state.residual = self.values.embed()
        state.x = self.values.norm(state.residual, task.args["norm"], task.constants["ksteps"])
        return None

    def _add_norm(self, state: _Sm, task: Instruction) -> Range | None:
        starts = [task.args["src"] + part * task.constants["stride"] for part in range(task.constants["parts"])]
        parts = [Range(start, self.config["hidden"], task.args["phase"]) for start in starts]
        if missing := self._first_missing(parts):
            return missing
        if state.residual == NOTHING:
            raise RejectedProgramError("the SM has no residual yet; embed_norm has to come first")
        copies = tuple(self.mailbox.read(part) for part in parts)
        state.residual = self.values.add(state.residual, copies, task.args.get("post"))
        state.x = self.values.norm(state.residual, task.args["norm"], task.constants["ksteps"])
        return None

    def _gather(self, state: _Sm, task: Instruction) -> Range | None:
        where = Range(task.args["src"], task.constants["length"], task.args["phase"])
        if not self.mailbox.ready(where):
            return where
        state.x = self.values.gather(self.mailbox.read(where), task.constants["ksteps"])
        return None

    def _gemv(self, state: _Sm, task: Instruction) -> Range | None:
        state.products.append((self._product(state, task),))
        return None

    def _gemv_park(self, state: _Sm, task: Instruction) -> Range | None:
        self.chains.park(self._product(state, task))
        return None

    def _gemv_resume(self, state: _Sm, task: Instruction) -> Range | None:
        state.products.append(self.chains.resume(self._product(state, task)))
        return None

    def _product(self, state: _Sm, task: Instruction) -> Product:
        if self.values.ksteps.get(state.x) != task.constants["ksteps"] * TILE_ROWS // task.constants["unit_rows"]:
            raise RejectedProgramError(f"x has {self.values.ksteps.get(state.x, 0)} k-steps in this SM")
        return Product(state.x, task)

    def _attend(self, state: _Sm, task: Instruction) -> Range | None:
        args, dim = task.args, self.config["head_dim"]
        phase, split, several = args["phase"], args["split"], self.config["max_splits"] > 1
        how = Attention(**task.constants)
        rows = [Range(args["q_src"], how.queries * dim, phase)]
        rows += [Range(args[name], dim, phase) for name in ("k_src", "v_src")]
        everything = self._all_heads(task) if how.qk_norm == PROJECTION else []
        if missing := self._first_missing(rows + everything):
            return missing
        q, k, v = (self.mailbox.read(where) for where in rows)
        q_all, k_all = (self.mailbox.read(where) for where in everything) if everything else (b"", b"")
        weights = self._norm_weights(how, args)
        block = self.values.block(how, args["kv_head"], args["out_dst"], (q, k, v), (q_all, k_all), weights)
        writer = self.values.partial(block, split)
        state.new_rows[split] = args["kv_head"]
        if split == 0:
            out = Range(args["out_dst"], how.queries * dim, phase)
            self.mailbox.write(out, codes_of(block.writer, out.length), ONE if several else BOTH)
        if several:
            start = args["part_dst"] + split * self._partial_step
            part = Range(start, how.queries * self.config["partial_stride"], phase)
            self.mailbox.write(part, codes_of(writer, part.length), SEVERAL)
        return None

    def _append(self, state: _Sm, task: Instruction) -> Range | None:
        """Attention has stored the row already (see `bind_attention`); here it only has to be the right one, once."""
        kv_head, split = task.args["kv_head"], task.args["split"]
        if state.new_rows.get(split) != kv_head:
            raise RejectedProgramError(
                f"the SM does not hold the new row of K/V head {kv_head}: put append after the attend of that head and "
                f"split {split}, before this SM attends to another head in that split"
            )
        if (kv_head, split) in self.appended:
            raise RejectedProgramError(f"another task has appended the new row of K/V head {kv_head} for split {split}")
        self.appended.add((kv_head, split))
        return None

    def _all_heads(self, task: Instruction) -> list[Range]:
        """All of q, and all of k."""
        q_width, k_width = (self.config[name] * self.config["head_dim"] for name in ("heads", "kv_heads"))
        start, phase = task.args["qkv"], task.args["phase"]
        return [Range(start, q_width, phase), Range(start + q_width, k_width, phase)]

    def _norm_weights(self, how: Attention, args: Mapping[str, int]) -> tuple[int, int]:
        """Where the norm weights of the block's q and of its k begin: one set for all heads, or as in the mailbox."""
        if how.qk_norm == PROJECTION:
            return args["norm"] + args["q_src"] - args["qkv"], args["norm"] + args["k_src"] - args["qkv"]
        return args["norm"], args["norm"] + self.config["head_dim"]

    @property
    def _partial_step(self) -> int:
        return self.config["heads"] * self.config["partial_stride"]

    def _combine(self, _: _Sm, task: Instruction) -> Range | None:
        """Merging one head's splits gives that head of the block's output, once all splits are there."""
        stride, dim, phase = self.config["partial_stride"], self.config["head_dim"], task.args["phase"]
        starts = [task.args["part_src"] + split * self._partial_step for split in range(self.config["max_splits"])]
        parts = [Range(start, stride, phase) for start in starts]
        if missing := self._first_missing(parts, SEVERAL):
            return missing
        firsts = [self.mailbox.read_several(part) for part in parts]
        found = [(self.values.partials.get(int(c[0]) >> INDEX_BITS), int(c[0]) % (1 << INDEX_BITS)) for c in firsts]
        block, head = found[0][0], found[0][1] // stride
        expected = [((block[0], split), head * stride) for split in range(len(parts))] if block else []
        if found != expected or any(int(codes[-1] - codes[0]) != stride - 1 for codes in firsts):
            raise RejectedProgramError("the partial results are not those of one head, split by split")
        assert block is not None
        out = Range(task.args["out_dst"], dim, phase)
        self.mailbox.write(out, codes_of(block[0].writer, (head + 1) * dim)[head * dim :], SEVERAL)
        return None

    def _sample(self, _: _Sm, task: Instruction) -> Range | None:
        where = Range(task.args["src"], BEST_WORDS * self.program.sms, task.args["phase"])
        return None if self.mailbox.ready(where) else where

    # Epilogue lane

    def _take(self, state: _Sm) -> Chain:
        return state.products[state.queues.due[state.next_epilogue] - 1]

    def _publish(self, state: _Sm, task: Instruction) -> None:
        scaled, gated, biased = (bool(task.constants[name]) for name in ("scaled", "gated", "biased"))
        chain, rows = self._take(state), task.constants["unit_rows"]
        if any(product.task.constants["unit_rows"] != rows for product in chain):
            raise RejectedProgramError(f"publishes {rows} rows of a unit that has another number of them")
        if scaled and not self._normed(chain):
            raise RejectedProgramError("scales by the norm of an x that was not normed")
        writer = self.values.unit(
            Shape(_factors(chain), scaled, gated, biased, unit_rows=rows),
            Unit(task.args["dst"], task.sm, _offsets(chain), task.args["bias"]),
        )
        where = Range(task.args["dst"], rows // 2 if gated else rows, task.args["phase"])
        self.mailbox.write(where, codes_of(writer, where.length))

    def _head(self, state: _Sm, task: Instruction) -> None:
        chain = self._take(state)
        if not self._normed(chain):
            raise RejectedProgramError("makes logits of an x that was not normed")
        shape = Shape(_factors(chain), scaled=True, head=True)
        self.values.unit(shape, Unit(task.args["row"], task.sm, _offsets(chain), 0))

    def _normed(self, chain: Chain) -> bool:
        return all(product.x in self.values.normed for product in chain)

    def _publish_best(self, _: _Sm, task: Instruction) -> None:
        self.mailbox.write(Range(task.args["dst"], BEST_WORDS, task.args["phase"]), codes_of(SIGNAL, BEST_WORDS))

    def _kv_release(self, _: _Sm, task: Instruction) -> None:
        self.mailbox.write(Range(task.args["dst"], 1, task.args["phase"]), codes_of(SIGNAL, 1))

    # What has to hold at the end of a token

    def _check_attention(self) -> None:
        """All splits of every block are attended, and each has a task that appends the new row where it is the last."""
        splits = range(self.config["max_splits"])
        for block in self.values.blocks():
            if set(block.partial_writers) != set(splits):
                raise RejectedProgramError(
                    f"K/V head {block.kv_head}: splits {sorted(block.partial_writers)} are attended, of {len(splits)}"
                )
            for split in splits:
                if (block.kv_head, split) not in self.appended:
                    raise RejectedProgramError(
                        f"K/V head {block.kv_head}: no task appends its new row where split {split} is the last"
                    )

    def _check_acquires(self) -> None:
        """The next token's streams wait for releases of this one, and releases happen in BODY, so in every token."""
        for sm, lane, _section, number, task in self.program.tasks():
            if lane is not Lane.STREAM or self.program.variants[task.opcode].op != "kv_acquire":
                continue
            src, phase = task.args
            where = Range(src, self.program.sms, phase)
            if not self.mailbox.ready(where):
                raise RejectedProgramError(
                    f"SM {sm}, stream lane, task {number}: kv_acquire waits forever for packet "
                    f"{self.mailbox.missing(where)} of the token before"
                )


def _factors(chain: Chain) -> tuple[tuple[int, int], ...]:
    return tuple((product.x, product.task.constants["ksteps"]) for product in chain)


def _offsets(chain: Chain) -> tuple[int, ...]:
    return tuple(product.task.tape_offset for product in chain)
