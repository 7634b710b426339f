"""Put mutants into whatever Amaranth elaborates: the tests, benches and proofs need no change.

:func:`install` hooks ``Module.elaborate``. What is elaborated for Verilog (:func:`gradloom.rtl.shared_module.convert`) holds every
mutant of the list, and a module of three lines reads at run time, from the environment variable :data:`NUMBER`, which of them is
active: one build serves them all. It also tells, in the file that :data:`REACHED` names, which mutants have made a difference
where they stand: a test passes with any other without being run; whole machines have a build of their own for that
(:func:`tell`). What is elaborated for Amaranth's simulator or a proof holds the active mutant alone.
"""

import dataclasses
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from amaranth.hdl import Fragment, Instance, Module, ResetSignal, Signal, Value
from amaranth.hdl._ast import Assign, Concat, Const, Statement, Switch, _StatementList

import gradloom.contracts.config
from gradloom.rtl import shared_module
from gradloom.sim import verilog
from gradloom.verif.mutants import operators

__all__ = ["INVALID", "NUMBER", "REACHED", "RTL", "Mutant", "Place", "install", "listening", "select", "tell"]

NUMBER = "GRADLOOM_MUTANT"
"""Environment variable: number of the active mutant, from 1; 0 or none: the design as it is."""
INVALID = 77
"""Exit code of a process whose mutant cannot be elaborated."""
RTL = Path(gradloom.contracts.config.__file__).parents[1] / "rtl"
REACHED = "GRADLOOM_MUTANTS_REACHED"
"""Environment variable: a file that gets a line with the number of each mutant whose change was, in any cycle, another value than
the original at a place that was in force. A mutant that is not in it computes the same in that run. Without it nothing is told."""
_TELLS = f'$c32("(getenv(\\"{REACHED}\\") ? 1 : 0)") != 0'
_TELL = (f'{{ static bool told = false; FILE* file; if (!told && (file = fopen(getenv(\\"{REACHED}\\"), \\"a\\"))) '
         '{ told = true; fprintf(file, \\"%d\\\\n\\", ')
# "tells" is asked once a machine: a look into the environment at every difference takes most of a simulation's time.
_SELECTOR = f"""module gradloom_mutant(output reg [15:0] select);
  initial begin
    select = $c32("(getenv(\\"{NUMBER}\\") ? atoi(getenv(\\"{NUMBER}\\")) : 0)");
    if ({_TELLS}) $c("{_TELL}0); fclose(file); }} }}");
  end
endmodule
"""
_REACHED = "module gradloom_mutant_reached #(parameter NUMBER = 0) (input differs);\n"
_TELLER = f"""
{_REACHED}  reg tells;
  initial tells = {_TELLS};
  always @(*) if (tells && differs) $c("{_TELL}", NUMBER, "); fclose(file); }} }}");
endmodule
"""
_MUTE = f"\n{_REACHED}endmodule\n"


@dataclasses.dataclass(frozen=True)
class Place:
    """A statement of the emitted RTL.

    Parameters
    ----------
    owner : :class:`str`
        File and line, relative to ``gradloom.rtl``, of the ``Module()`` that it is in.
    file : :class:`str`
    line : :class:`int`
        Where it was written.
    """

    owner: str
    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change. Loops and configurations make many statements of a line: ``instance`` of them and ``site`` of the places where
    ``operator`` applies are shares of 2^16, so that each configuration has its own.

    Parameters
    ----------
    what : :class:`str`
        The change in words, in the configuration that it was found in.
    config : :class:`str`
        Name of that configuration.
    """

    place: Place
    instance: int
    operator: str
    site: int
    what: str
    config: str

    @property
    def name(self) -> str:
        """A short name that does not depend on line numbers of other modules."""
        return hashlib.sha256(repr((self.place, self.instance, self.operator, self.site)).encode()).hexdigest()[:10]


Listener = Callable[[Place, int, list[tuple[str, str]]], None]
"""Takes a statement, its number among those of its line and module, and its variants (operator, change)."""


@dataclasses.dataclass
class _State:
    mutants: tuple[Mutant, ...] = ()
    number: int = 0
    listener: Listener | None = None
    installed: bool = False
    by_owner: dict[str, list[tuple[int, Mutant]]] = dataclasses.field(default_factory=dict)
    found: set[int] = dataclasses.field(default_factory=set)


_state = _State()


def install(mutants: Iterable[Mutant]) -> None:
    """From now on everything that is elaborated holds these mutants. The Verilog kept by the simulator gets keys of its own."""
    _state.mutants = tuple(mutants)
    owners: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(_state.mutants, 1):
        owners[mutant.place.owner].append((number, mutant))
    _state.by_owner = dict(owners)
    _state.found.clear()
    _hook()


def select(number: int) -> None:
    """Make mutant ``number`` (from 1) the active one; 0: none. Verilated models look when they are made."""
    _state.number = number
    os.environ[NUMBER] = str(number)


def tell(file: Path) -> None:
    """From now on ``file`` hears which mutants are reached (:data:`REACHED`)."""
    os.environ[REACHED] = str(file)
    verilog.machine_verilog.cache_clear()


class listening:
    """While this context is open, ``listener`` hears of every statement of the RTL that is elaborated."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def __enter__(self) -> None:
        _hook()
        _state.listener = self.listener

    def __exit__(self, *_: object) -> None:
        _state.listener = None


def _hook() -> None:
    if _state.installed:
        return
    _state.installed = True
    elaborate, convert = Module.elaborate, shared_module.convert

    def elaborate_mutated(self: Module, platform: object) -> Fragment:
        fragment = elaborate(self, platform)
        owner = _relative(self._src_loc)
        if owner is not None and (_state.listener is not None or owner in _state.by_owner):
            try:
                _Body(owner).rewrite(fragment)
            except Exception as error:
                if shared_module.current_library() is not None or not _state.number:
                    raise
                print(f"ERROR invalid mutant: {error!r}", flush=True)
                os._exit(INVALID)
        return fragment

    def convert_mutated(build: Callable[[], Any], name: str) -> str:
        text = convert(build, name)
        return "\n".join((text, _SELECTOR, _teller(name))) if " gradloom_mutant " in text else text

    Module.elaborate = elaborate_mutated  # type: ignore[method-assign]
    shared_module.convert = convert_mutated

    digest = verilog._digest

    def digest_mutated(config: Any) -> str:
        if not _state.mutants:
            return digest(config)
        return hashlib.sha256(repr((digest(config), _state.mutants, _teller(verilog.TOP), _sources())).encode()).hexdigest()

    verilog._digest = digest_mutated


def _teller(name: str) -> str:
    """What tells. In a whole machine of which nobody wants to hear it, nothing: a simulation takes half of the time then."""
    return _MUTE if name == verilog.TOP and REACHED not in os.environ else _TELLER


def _sources() -> str:
    return "".join((Path(__file__).parent / name).read_text() for name in ("instrument.py", "operators.py"))


def _relative(location: tuple[str, int] | None) -> str | None:
    """File and line relative to the RTL, or none if they lie outside."""
    if location is None or not location[0].startswith(str(RTL)):
        return None
    return f"{Path(location[0]).relative_to(RTL)}:{location[1]}"


def _place(owner: str, location: tuple[str, int] | None) -> Place | None:
    found = _relative(location)
    if found is None:
        return None
    file, line = found.rsplit(":", 1)
    return Place(owner, file, int(line))


def _share(share: int, count: int) -> int:
    """Which of ``count``."""
    return share * count >> 16


def _chain(statement: Switch) -> bool:
    """Whether this is an If with its Elifs: one bit for each condition."""
    if not isinstance(statement.test, Concat):
        return False
    count = len(statement.test.parts)
    found = [patterns for patterns, _, _ in statement.cases if patterns is not None]
    return len(found) <= count == len(statement.test) and all(
        patterns == (("1" + "-" * n).rjust(count, "-"),) for n, patterns in enumerate(found))


class _Body:
    """The statements of one module, walked twice: to number what may be changed, and to change it."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.places: dict[Place, list[list[tuple[str, str]]]] = defaultdict(list)
        self.wanted: dict[tuple[Place, int], dict[tuple[str, int], list[int]]] = {}
        self.seen: dict[Place, int] = defaultdict(int)
        self.recording = True
        self.selector: Signal | None = None
        self.resets: list[tuple[str, Signal, Value | None, int]] = []
        self.registers: set[int] = set()
        self.reached: list[tuple[int, str, Signal]] = []

    def rewrite(self, fragment: Fragment) -> None:
        original = dict(fragment.statements)
        for domain, statements in original.items():
            self._statements(statements, domain)
        if _state.listener is not None:
            for place, found in self.places.items():
                for n, variants in enumerate(found):
                    _state.listener(place, n, variants)
        if shared_module.current_library() is None and REACHED in os.environ:
            with Path(os.environ[REACHED]).open("a") as file:  # a simulator of Amaranth's does not tell
                file.writelines(f"{number}\n" for number, _ in _state.by_owner.get(self.owner, ()))
        active = [(number, mutant) for number, mutant in _state.by_owner.get(self.owner, ())
                  if shared_module.current_library() is not None or number == _state.number]
        for number, mutant in active:
            found = self.places.get(mutant.place, [])
            if not found:
                continue
            instance = _share(mutant.instance, len(found))
            count = sum(operator == mutant.operator for operator, _ in found[instance])
            if count:
                wanted = self.wanted.setdefault((mutant.place, instance), {})
                wanted.setdefault((mutant.operator, _share(mutant.site, count)), []).append(number)
                _state.found.add(number)
        if not self.wanted:
            return
        self.recording = False
        self.seen.clear()
        self.registers.clear()
        if shared_module.current_library() is not None:
            self.selector = Signal(16, name="mutant")
        for domain, statements in original.items():
            fragment.statements[domain] = self._statements(statements, domain)
        self._add_resets(fragment)
        if self.selector is not None:
            instance_of = Instance("gradloom_mutant", o_select=self.selector)
            fragment.add_subfragment(Fragment.get(instance_of, None), "mutant_selector")
            self._tell(fragment)

    def reach(self, number: int, differs: Value | int, domain: str) -> Assign:
        """What tells, at the place that it is put, that a mutant makes a difference."""
        told = Signal(name=f"mutant_{number}_reached", reset_less=True)
        self.reached.append((number, domain, told))
        return Assign(told, Value.cast(differs))

    def _tell(self, fragment: Fragment) -> None:
        for n, (number, domain, told) in enumerate(self.reached):
            if domain != "comb":
                fragment.statements[domain].insert(0, Assign(told, Const(0, 1)))
            instance_of = Instance("gradloom_mutant_reached", p_NUMBER=number, i_differs=told)
            fragment.add_subfragment(Fragment.get(instance_of, None), f"mutant_reached_{n}")

    # Statements

    def _statements(self, statements: Iterable[Statement], domain: str) -> _StatementList:
        result = _StatementList()
        for statement in statements:
            result.extend(self._statement(statement, domain))
        return result

    def _statement(self, statement: Statement, domain: str) -> Iterator[Statement]:
        if isinstance(statement, Assign):
            yield from self._assign(statement, domain)
        elif isinstance(statement, Switch):
            yield from self._chain(statement, domain) if _chain(statement) else self._switch(statement, domain)
        else:
            yield statement

    def _assign(self, statement: Assign, domain: str) -> Iterator[Statement]:
        place = _place(self.owner, statement.src_loc)
        if place is None:
            yield statement
            return
        site = _Site(self, place)
        value = site.value(statement.rhs, fixed=False)
        for variant in operators.width_variants(statement.rhs, len(statement.lhs)):
            value = site.offer(variant, value)
        if len(statement.lhs) == 1:
            for variant in operators.condition_variants(statement.rhs[:1] if len(statement.rhs) > 1 else statement.rhs):
                value = site.offer(variant, value)
        self._resets(site, statement.lhs, domain)
        new = statement
        if value is not statement.rhs:
            new = Assign(statement.lhs, value)
            new.src_loc = statement.src_loc
        dropped = site.wanted("statement", "left out")
        yield from site.reached(domain)
        if self.selector is not None:
            # What it would keep instead is known to its process alone.
            yield from (self.reach(number, 1, domain) for number in dropped)
        if not dropped:
            yield new
        elif self.selector is not None:
            yield Switch(self._active(dropped), [("0", [new], statement.src_loc)], src_loc=statement.src_loc)

    def _chain(self, statement: Switch, domain: str) -> Iterator[Statement]:
        assert isinstance(statement.test, Concat)
        tests, cases = [], []
        for n, (patterns, body, location) in enumerate(statement.cases):
            if patterns is not None:
                test: Value = statement.test.parts[n]
                place = _place(self.owner, location)
                if place is not None:
                    site = _Site(self, place)
                    new = site.value(test, fixed=True)
                    for variant in operators.condition_variants(test):
                        new = site.offer(variant, new)
                    test = new
                    yield from site.reached(domain)
                tests.append(test)
            cases.append((patterns, self._statements(body, domain), location))
        tests += statement.test.parts[len(tests):]
        yield Switch(Concat(tests), cases, src_loc=statement.src_loc)

    def _switch(self, statement: Switch, domain: str) -> Iterator[Statement]:
        test = statement.test
        place = _place(self.owner, statement.src_loc)
        if place is not None:
            site = _Site(self, place)
            test = site.value(test, fixed=True)
            yield from site.reached(domain)
        cases, without = [], []
        for patterns, body, location in statement.cases:
            place = _place(self.owner, location)
            left_out: list[int] = []
            if place is not None and patterns is not None:
                site = _Site(self, place)
                left_out = site.wanted("case", f"case {' '.join(patterns)} left out")
            without.append(left_out)
            statements = self._statements(body, domain)
            if self.selector is not None:
                statements[:0] = [self.reach(number, 1, domain) for number in left_out]
            cases.append((patterns, statements, location))
        new = Switch(test, cases, src_loc=statement.src_loc)
        for n, numbers in enumerate(without):
            if not numbers:
                continue
            fewer = Switch(test, [case for place_of, case in enumerate(cases) if place_of != n], src_loc=statement.src_loc)
            if self.selector is None:
                new = fewer
            else:
                new = Switch(self._active(numbers), [("1", [fewer], statement.src_loc), (None, [new], statement.src_loc)],
                             src_loc=statement.src_loc)
        yield new

    # Registers

    def _resets(self, site: "_Site", target: Value, domain: str) -> None:
        if domain == "comb" or not isinstance(target, Signal) or id(target) in self.registers:
            return
        self.registers.add(id(target))
        if target.reset_less or not len(target):
            return
        original = target.__dict__.setdefault("_unmutated_init", target.init)
        shape = target.shape()
        for value in ({original ^ 1} if len(target) == 1 else {original ^ 1, original ^ 1 << len(target) - 1}):
            for number in site.wanted("reset", f"{target.name} resets to {value & (1 << shape.width) - 1:#x}"):
                self.resets.append((domain, target, Const(value, shape), number))
        for number in site.wanted("reset", f"{target.name} is not reset"):
            self.resets.append((domain, target, None, number))

    def _add_resets(self, fragment: Fragment) -> None:
        for domain, target, value, number in self.resets:
            original = Const(target.__dict__["_unmutated_init"], target.shape())
            if self.selector is not None:
                target._reset_less = True
                new: Value = operators.chosen(self.selector, number, target if value is None else value, original)
                reset = ResetSignal(domain, allow_reset_less=True)
                fragment.add_statements("comb", self.reach(
                    number, reset if value is not None else reset & (target != original), "comb"))
                fragment.add_statements(domain, Switch(reset, [("1", [Assign(target, new)], None)], src_loc=None))
            elif value is None:
                target._reset_less = True
            else:
                assert isinstance(value, Const)
                target._init = value.value

    def _active(self, numbers: list[int]) -> Value:
        assert self.selector is not None
        return Concat([self.selector == number for number in numbers]).any()


class _Site:
    """One statement, while it is walked: numbers its variants, or puts in those that are wanted.

    Expressions made by a function of another file of the RTL count as statements of that file.
    """

    def __init__(self, body: _Body, place: Place) -> None:
        self.body = body
        self.place = place
        self.memo: dict[tuple[int, bool], tuple[Value, Value]] = {}
        self.counts: dict[tuple[Place, str], int] = defaultdict(int)
        self.instances: dict[Place, int] = {}
        self.differences: list[tuple[int, Value]] = []
        self._instance(place)
        self.idle = not body.recording and (place, self.instances[place]) not in body.wanted and not any(
            wanted.file != place.file for wanted, _ in body.wanted)

    def _instance(self, place: Place) -> int:
        if place not in self.instances:
            self.instances[place] = self.body.seen[place]
            self.body.seen[place] += 1
            if self.body.recording:
                self.body.places[place].append([])
        return self.instances[place]

    def wanted(self, operator: str, what: str, place: Place | None = None) -> list[int]:
        """Numbers of the mutants that want this change; they are counted in the order of the calls."""
        place = place or self.place
        instance = self._instance(place)
        if self.body.recording:
            self.body.places[place][instance].append((operator, what))
            return []
        ordinal = self.counts[place, operator]
        self.counts[place, operator] += 1
        return self.body.wanted.get((place, instance), {}).get((operator, ordinal), [])

    def offer(self, variant: operators.Variant, value: Value, shape: Any = None, place: Place | None = None) -> Value:
        """``value``, or the variant if it is wanted; cut to ``shape`` if there is one."""
        operator, what, make = variant
        for number in self.wanted(operator, what, place):
            changed = make()
            if shape is not None:
                changed, value = operators.fit(changed, shape), operators.fit(value, shape)
            selector = self.body.selector
            if selector is None:
                value = changed
            else:
                self.differences.append((number, changed != value))
                value = operators.chosen(selector, number, changed, value)
        return value

    def reached(self, domain: str) -> Iterator[Statement]:
        """Statements for the place of this one: they tell whose change makes a difference."""
        return (self.body.reach(number, differs, domain) for number, differs in self.differences)

    def value(self, node: Value, *, fixed: bool) -> Value:
        """``node`` with what is wanted of it and its operands. A node that is used twice is walked once."""
        if self.idle:
            return node
        key = (id(node), fixed)
        if key in self.memo:
            return self.memo[key][1]
        pieces = operators.parts(node)
        children = [self.value(piece, fixed=counts) for piece, counts in pieces]
        new = node
        if any(child is not piece for child, (piece, _) in zip(children, pieces, strict=True)):
            new = operators.rebuild(node, children)
        place = None if isinstance(node, Signal) else _place(self.body.owner, node.src_loc)
        if place is not None and place.file == self.place.file:
            place = None
        for variant in operators.value_variants(node):
            new = self.offer(variant, new, node.shape() if fixed else None, place)
        if fixed and new is not node:
            new = operators.fit(new, node.shape())
        self.memo[key] = (node, new)
        return new
