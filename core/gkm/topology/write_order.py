"""The order of writes from the HyperNodes on the server to the wanted ones: docs/design/hypernodes.md. Pure.

After each write the HyperNodes are a forest with one parent each, rising tiers, existing children and at least one
member, if they were one before. And a domain never mixes nodes that neither the old nor the new tree has together: it
has nodes of its old content only, or of its new content only. A node that moves is out of the tree only until the next
writes put it into its new domain, and domains that lose nothing stay whole.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gkm.topology.hypernodes import HyperNode, Member

# Domains with more members than _LARGE may lose or gain one part of _SHARE at once.
_LARGE = 256
_SHARE = 16


class Write(NamedTuple):
    """One request: the whole new HyperNode, or the one that goes."""

    action: Literal["create", "update", "delete"]
    hypernode: HyperNode


def ordered_writes(current: Mapping[str, HyperNode], wanted: Mapping[str, HyperNode]) -> list[Write]:
    """Return the writes that make `current` equal to `wanted`, which is valid. Both are by name.

    An invalid `current`, which only others can make, is repaired first.
    """
    order = _Order(current, wanted)
    order.repair()
    order.raise_tiers()
    order.settle()
    order.delete_unwanted()
    return order.writes


def _owners(hypernodes: Iterable[HyperNode]) -> dict[Member, str]:
    return {member: hypernode.name for hypernode in hypernodes for member in hypernode.members}


class _Order:
    """The simulated server, and what has been written to it.

    A member is stale where it is not wanted. Stale members stay until their new domain takes them, except where their
    domain gets nodes that it did not have.
    """

    def __init__(self, current: Mapping[str, HyperNode], wanted: Mapping[str, HyperNode]) -> None:
        self.writes: list[Write] = []
        self._now = dict(current)
        self._wanted = wanted
        self._wanted_members = {name: frozenset(each.members) for name, each in wanted.items()}
        self._new_owner = _owners(wanted.values())
        self._owner: dict[Member, str] = {}
        for name, hypernode in sorted(current.items()):
            for member in hypernode.members:
                # Other edges do not count, so that what counts is a forest, whatever others wrote.
                exists = member.kind == "Node" or member.name in current
                rises = exists and (member.kind == "Node" or current[member.name].tier < hypernode.tier)
                if rises and (member not in self._owner or self._new_owner.get(member) == name):
                    self._owner[member] = name
        self._members: dict[str, set[Member]] = {name: set() for name in current}
        for member, owner in self._owner.items():
            self._members[owner].add(member)
        self._old_owner = dict(self._owner)
        self._clean: set[str] = set()
        self._done: set[str] = set()
        self._moved: set[str] = set()
        self._freed: list[Member] = []

    def repair(self) -> None:
        """Remove what makes the current HyperNodes invalid."""
        for name, hypernode in sorted(self._now.items()):
            members = self._members.get(name)
            if members is not None and (not members or len(members) != len(hypernode.members)):
                self._remove(name, set())

    def raise_tiers(self) -> None:
        """Raise tiers, the widest first, so that they never meet those of parents."""
        rising = [each for name, each in self._wanted.items() if name in self._now and each.tier > self._now[name].tier]
        for hypernode in sorted(rising, key=lambda each: (-each.tier, each.name)):
            name = hypernode.name
            parent = self._owner.get(_child(name))
            if parent is not None and self._now[parent].tier <= hypernode.tier:
                self._remove(parent, {_child(name)})
            if name in self._now:
                self._put(name, self._members[name])

    def settle(self) -> None:
        """Bring every wanted domain to its content, the closest first; nodes that lost their domain come next."""
        for hypernode in sorted(self._wanted.values(), key=lambda each: (each.tier, each.name)):
            self._settle(hypernode.name, final=True)
            while self._freed:
                freed = self._freed.pop()
                target = freed.name if freed.kind == "HyperNode" else self._new_owner.get(freed, "")
                if target in self._wanted and target not in self._done and freed not in self._owner:
                    self._settle(target, final=False)

    def delete_unwanted(self) -> None:
        """Delete what is not wanted; nothing wanted has it as a member any more."""
        unwanted = (each for name, each in self._now.items() if name not in self._wanted)
        for hypernode in sorted(unwanted, key=lambda each: (-each.tier, each.name)):
            self._delete(hypernode.name)

    def _settle(self, name: str, *, final: bool) -> None:
        """Give a domain its members, those of one other domain after another. `final`: its children are settled."""
        wanted = self._wanted_members[name]
        while True:
            usable = [member for member in wanted if self._is_usable(member, name)]
            free = {member for member in usable if member not in self._owner}
            if free:
                self._grow(name, free, final=final)
            sources: dict[str, set[Member]] = {}
            for member in usable:
                owner = self._owner.get(member, name)
                if owner != name:
                    sources.setdefault(owner, set()).add(member)
            if not sources:
                break
            self._take(sources, _batch(len(wanted)))
        if final:
            if name in self._now and self._now[name] != self._wanted[name]:
                self._put(name, wanted)
            self._done.add(name)
        self._attach(name)

    def _take(self, sources: Mapping[str, set[Member]], count: int) -> None:
        """Remove members from their domains, of one domain after the other until they are `count`."""
        for owner, members in sorted(sources.items()):
            if owner not in self._members:
                continue  # a removal before took its last member
            # Each write of a large domain is large: others that leave it go with these, and get their domains next.
            more = _batch(len(self._members[owner])) - len(members)
            if more > 0:
                leaving = self._members[owner] - self._wanted_members.get(owner, frozenset()) - members
                homes = sorted((self._new_owner[each], each) for each in leaving if each in self._new_owner)
                members.update(each for _, each in homes[:more])
            self._remove(owner, members)
            count -= len(members)
            if count <= 0:
                return

    def _is_usable(self, member: Member, name: str) -> bool:
        if member.kind == "Node":
            return True
        above = self._now.get(name, self._wanted[name]).tier
        return member.name in self._done and self._now[member.name].tier < above

    def _attach(self, name: str) -> None:
        """Put a domain whose nodes were in the tree back into it at once, with the wider domains that it lacks."""
        while name in self._now:
            child = _child(name)
            parent = self._new_owner.get(child)
            lost = name in self._moved or (child in self._old_owner and child not in self._owner)
            if parent is None or not lost or self._owner.get(child) == parent:
                return
            for holder, gone in self._outsiders(name).items():
                self._remove(holder, gone)
            self._clean.add(name)
            above = self._now.get(parent, self._wanted[parent]).tier
            if name not in self._now or self._now[name].tier >= above:
                return
            if child in self._owner:
                self._remove(self._owner[child], {child})
            created = parent not in self._now
            self._moved.add(parent)
            self._grow(parent, {child}, final=False)
            if not created:
                return
            name = parent

    def _grow(self, name: str, added: set[Member], *, final: bool) -> None:
        """Add members without an owner. Nodes that must not be with them leave the domain and all wider ones first."""
        nodes = self._nodes(added)
        cut: set[Member] = set()
        new_above = self._chain(self._new_owner, _child(name))
        inner, owner = name, self._owner.get(_child(name))
        while inner in self._now:
            if inner not in self._clean and not self._had(inner, nodes):
                for holder, gone in self._outsiders(inner).items():
                    if holder == name:
                        cut |= gone
                    else:
                        self._remove(holder, gone)
                self._clean.add(inner)
            owner = self._owner.get(_child(inner))
            if owner is None:
                break
            if owner not in new_above and (owner in self._clean or not self._had(owner, nodes)):
                self._remove(owner, {_child(inner)})
                break
            inner = owner
        if name not in self._now:
            self._clean.add(name)
        if any(member in self._old_owner for member in added):
            self._moved.add(name)
        members = (self._members.get(name, set()) - cut) | added
        wanted = self._wanted_members[name]
        self._put(name, wanted if final and members >= wanted else members)

    def _outsiders(self, top: str) -> dict[str, set[Member]]:
        """Return the members to remove so that no node is below `top` that does not belong there, by their owner."""
        found: dict[str, set[Member]] = {}
        stack: list[tuple[str, tuple[str, Member] | None]] = [(top, None)]
        while stack:
            name, stale = stack.pop()
            wanted = self._wanted_members.get(name, frozenset())
            for member in self._members[name]:
                # The closest stale edge: what is below it may stay together.
                edge = stale if member in wanted else (name, member)
                if member.kind == "HyperNode":
                    stack.append((member.name, edge))
                elif edge is not None and top not in self._chain(self._new_owner, member):
                    found.setdefault(edge[0], set()).add(edge[1])
        return found

    def _had(self, name: str, nodes: Iterable[Member]) -> bool:
        """Return whether all nodes were in a domain at the start."""
        return all(name in self._chain(self._old_owner, node) for node in nodes)

    @staticmethod
    def _chain(owners: Mapping[Member, str], member: Member) -> list[str]:
        """Return the domains around a member, the closest first."""
        chain: list[str] = []
        owner = owners.get(member)
        while owner is not None:
            chain.append(owner)
            owner = owners.get(_child(owner))
        return chain

    def _nodes(self, members: Iterable[Member]) -> list[Member]:
        found: list[Member] = []
        stack = list(members)
        while stack:
            member = stack.pop()
            if member.kind == "Node":
                found.append(member)
            else:
                stack.extend(self._members[member.name])
        return found

    def _remove(self, name: str, gone: set[Member]) -> None:
        """Remove members. A HyperNode without members is deleted, after its parent dropped it."""
        empty: list[str] = []
        target: str | None = name
        while target is not None and not self._members[target] - gone:
            empty.append(target)
            gone = {_child(target)}
            target = self._owner.get(_child(target))
        if target is not None:
            self._put(target, self._members[target] - gone)
        for each in reversed(empty):
            self._delete(each)

    def _put(self, name: str, members: Iterable[Member]) -> None:
        """Write a HyperNode, with its new tier as soon as that is between those of members and parent."""
        new = set(members)
        before = self._now.get(name)
        wanted = self._wanted.get(name)
        after = wanted if before is None or (wanted is not None and self._fits(name, new, wanted.tier)) else before
        if after is None:  # a HyperNode that is neither on the server nor wanted is never written
            raise AssertionError(name)
        written = HyperNode(name, after.tier_name, tuple(sorted(new)), after.tier)
        if written == before:
            return
        self._release(name, self._members.get(name, set()) - new)
        self._members[name] = new
        self._owner.update(dict.fromkeys(new, name))
        self._now[name] = written
        self.writes.append(Write("create" if before is None else "update", written))

    def _fits(self, name: str, members: Iterable[Member], tier: int) -> bool:
        parent = self._owner.get(_child(name))
        below = [self._now[member.name].tier for member in members if member.kind == "HyperNode"]
        return max(below, default=-1) < tier and (parent is None or tier < self._now[parent].tier)

    def _delete(self, name: str) -> None:
        self._release(name, self._members.pop(name))
        self.writes.append(Write("delete", self._now.pop(name)))

    def _release(self, name: str, gone: set[Member]) -> None:
        for member in sorted(gone):
            if self._owner.get(member) == name:
                del self._owner[member]
                self._freed.append(member)


def _batch(members: int) -> int:
    """Return how many members a domain may gain or lose at once at least: a small part of a large one."""
    return members // _SHARE if members > _LARGE else 1


def _child(name: str) -> Member:
    return Member("HyperNode", name)
