"""The replay, slowly and plainly: every decode step is played, every total is summed anew.

Written from the definitions, not from the kernel; standard library only. It reads the same Fleet and
Rules and must give the same outcome, to the last bit on a binary time grid.
"""

from dataclasses import dataclass, field
from math import inf, nan
from operator import attrgetter

from naive_cache import NaiveCache
from naive_fleet import BOOTING, DECODE_ONLY, DONATED, GONE, PREFILL_ONLY, SERVING, WHOLE, NaiveFleet
from naive_legs import NaiveLegs
from naive_levels import NaiveLevels


@dataclass(eq=False)  # one is another only where it is the same object: comparing fields takes long
class Request:
    turn: int
    arrival_s: float
    region: int
    llm: int
    tier: int
    input_tokens: int
    output_tokens: int
    then: int  # row of the next leg, or -1
    leg: int
    score: float
    level: int
    given: int  # tokens of the prompt that a cache had, as the trace says
    hashes: list  # of the whole blocks of prompt and answer
    refs: list = field(default_factory=list)  # those of them that it holds where it is
    reused: int = 0
    hit_tokens_at_dispatch: int = 0
    spared: bool = False
    made: int = 0  # output tokens so far
    held: int = 0  # KV tokens that its last decode step computed, or that it came with
    surplus: int = 0  # tokens that its last step made beyond its answer
    cached: int = 0  # KV tokens it holds
    pending: int = 0  # prompt tokens not yet prefilled
    admission_turn: int = 0
    preemptions: int = 0
    refused: bool = False
    transferred_tokens: int = 0  # KV tokens that come along, or came
    source_slot: int | None = None  # slot that they are sent from
    sender_tokens: int = 0  # of these, what fills that slot's memory still
    migrating_to: int | None = None
    migrated_tokens: int = 0
    copies: int = 0
    leaves: bool = False
    given_up: int = 0
    ready_s: float = inf
    queued_s: float = -inf
    sent_from: int = -1
    sent_s: float = nan
    came_s: float = nan
    joined_s: float = nan
    dispatched_s: float = nan
    runs_both_phases: bool = False
    first_token_s: float | None = None
    finish_s: float | None = None
    served_by: int | None = None
    last_token_s: float = -inf

    def stands_at(self):
        """The slots whose load it counts among: where it is or goes, and where its cache is held."""
        return {self.served_by, self.source_slot if self.sender_tokens else self.served_by} - {None}

    def makes_tokens(self, now, tokens=1):
        assert now > max(self.last_token_s, self.arrival_s), "invariant 2: gaps are never negative"
        self.surplus = max(0, self.made + tokens - self.output_tokens)
        self.made += tokens - self.surplus
        self.last_token_s = now


@dataclass(eq=False)
class Instance:
    slot: int
    pool: int
    status: int
    wakes_s: float = inf
    donation_due_s: float | None = None  # when it is donated, once it is empty
    accounted_until_s: float = 0.0
    joining: list = field(default_factory=list)  # being prefilled
    batch: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    outbound: list = field(default_factory=list)
    out_free_s: float = 0.0
    in_free_s: float = 0.0
    began_s: float = 0.0
    composed_s: float = 0.0  # when the step began that ended last
    seen_kv: int = 0
    cache: list = field(default_factory=list)  # hashes that no request holds, the least recently used first
    queue_dirty: bool = False
    ended: int = 0  # requests that ended at this boundary, which an async engine still counts
    ended_held: dict = field(default_factory=dict)  # of these: tokens of their blocks, and those not cached
    has_preempted: bool = False  # at this boundary: with chunks, nothing is admitted then
    chunk_limit: float = inf  # most prompt tokens of one request in this step
    chunks: dict = field(default_factory=dict)  # prompt tokens of this step, by request
    paused: list = field(default_factory=list)  # running requests that this step does not hold
    service_s: float = 0.0
    steps: int = 0  # with a decode batch

    role: int = WHOLE

    unknown: list = field(default_factory=list)  # requests that an async engine does not know of yet
    ranks: list = field(
        default_factory=list
    )  # of a whole instance: itself first, and those that step with it
    whole: "Instance" = None  # of a rank: the one that has them

    @property
    def ended_tokens(self):
        return sum(held for held, _ in self.ended_held.values())

    @property
    def ended_uncached_tokens(self):
        return sum(uncached for _, uncached in self.ended_held.values())

    def load(self, requests):
        """Tokens that are its to process, by its role, of the requests that are here or on their way."""
        slots = self.slots
        mine = [r for r in requests if r.made < r.output_tokens and slots & r.stands_at()]
        prompts = sum(
            r.input_tokens - r.hit_tokens_at_dispatch
            for r in mine
            if r.runs_both_phases or self.role != DECODE_ONLY
        )
        return prompts + sum(r.output_tokens for r in mine if r.runs_both_phases or self.role != PREFILL_ONLY)

    def waiting_tokens(self, requests):
        """Of the prompts that are here and have no token yet."""
        slots = self.slots
        here = [r for r in requests if r.made == 0 and slots & r.stands_at()]
        return sum(r.input_tokens for r in here)

    @property
    def slots(self):
        return {rank.slot for rank in self.ranks}

    @property
    def all_seen_kv(self):
        return sum(rank.seen_kv for rank in self.ranks)

    @property
    def is_busy(self):
        return any(rank.joining or rank.batch for rank in self.ranks)

    @property
    def weight(self):
        """By which the ranks of an instance are compared."""
        return 4 * len(self.waiting + self.unknown) + len(self.batch + self.joining)


class Replay(NaiveCache, NaiveFleet, NaiveLegs, NaiveLevels):
    def __init__(self, rows, fleet, rules, policies, start):
        self.requests = [Request(turn, *row) for turn, row in enumerate(rows)]
        self.fleet, self.rules = fleet, rules
        self.scaling, self.order, self.batching, self.routing, self.spread, self.prefix = policies[:-2]
        self.signal, self.batch_pull = policies[-2:]
        self.by_level = self.order in ("priority", "preemptive")
        self.credit = [0.0] * len(fleet.kind)
        self.failures = list(zip(rules.failure_s.tolist(), rules.failure_slot.tolist(), strict=True))
        self.turn = [int(end) - 1 for end in fleet.slots[1:]]
        self.regions, self.llms, self.pools = (
            len(fleet.preference),
            len(fleet.defers_batch_tier),
            len(fleet.kind),
        )
        self.instances, self.rented_from_s, self.rented_s = [], {}, 0.0
        self.by_pool = [[] for _ in range(self.pools)]
        for pool in range(self.pools):
            slots = fleet.slots[pool + 1] - fleet.slots[pool]
            lead = next((e for e in range(self.pools) if fleet.then[e] == pool), pool)
            serving = self.begun(pool, start)
            if fleet.team[pool]:
                serving = self.begun(lead, start) // fleet.team[lead] * fleet.team[pool]
            for n in range(slots):
                held = n < fleet.instances_at_start[pool]
                status = SERVING if n < serving else DONATED if held else GONE
                self.instances.append(Instance(len(self.instances), pool, status, role=fleet.role[pool]))
                self.by_pool[pool].append(self.instances[-1])
                if status != GONE:
                    self.rented_from_s[self.instances[-1].slot] = 0.0
        for whole in list(self.instances):
            whole.whole, whole.ranks = whole, [whole]
            for _ in range(1, fleet.ranks[fleet.kind[whole.pool]]):
                rank = Instance(len(self.instances), whole.pool, GONE, role=whole.role, whole=whole)
                self.instances.append(rank)
                whole.ranks.append(rank)
        self.niw = [[] for _ in range(self.llms)]
        self.stranded = [[] for _ in range(self.llms)]
        self.kept = [[] for _ in range(self.llms)]
        self.cooldown = [0.0] * self.pools
        self.came, self.rate, self.reactive_target = ([0] * self.pools for _ in range(3))
        self.wishes = [[] for _ in range(self.pools)]
        self.spent = [[0.0] * 4 for _ in range(self.pools)]
        self.target, self.forecast = [0] * self.pools, [0.0] * self.pools
        self.arrivals = [[] for _ in range(self.regions * self.llms)]
        self.accounted_until_s = self.before_s = 0.0
        self.hour_s = self.monitor_s = 0.0
        self.next_boot_sample, self.admissions = [0] * self.pools, 0
        self.go_on_below = rules.go_on_below.tolist()
        self.legs_of, self.legs_per_s = [[] for _ in range(self.llms)], [0.0] * self.llms
        self.inbound = list(self.requests)
        self.in_flight = []
        self.tick = 0
        self.any_drafts = bool(fleet.drafts.tokens.any())

    def begun(self, pool, start):
        slots = self.fleet.slots[pool + 1] - self.fleet.slots[pool]
        wanted = round(self.fleet.share[pool] * start[self.endpoint(pool)])
        return min(max(wanted, self.fleet.min_instances[pool]), slots)

    # --- the clock: control tick, monitor tick, failures, arrivals, instances by slot, hand-overs

    def advance(self, until_s, until_ended=False):
        while not (until_ended and all(r.finish_s or r.refused or r.spared for r in self.requests)):
            instance = min(self.instances, key=attrgetter("wakes_s"))  # the first of those that do
            arrival_s = self.inbound[0].arrival_s if self.inbound else inf
            failure_s = self.failures[0][0] if self.failures else inf
            next_moved = min(self.in_flight, key=lambda r: (r.ready_s, r.turn), default=None)
            ready_s = next_moved.ready_s if next_moved else inf
            tick_s = self.tick * self.rules.balance_s if self.rules.balance_s < inf else inf
            now = min(self.monitor_s, tick_s, failure_s, arrival_s, instance.wakes_s, ready_s)
            if now >= until_s:
                break
            if now == tick_s:
                self.tick += 1
                self.balance(now)
            elif now == self.monitor_s:
                self.monitor(now)
            elif now == failure_s:
                self.fail(self.instances[self.failures.pop(0)[1]], now)
            elif now == arrival_s:
                request = self.inbound.pop(0)
                if request.leg == 0:
                    self.enter(request, now)
            elif now == instance.wakes_s:
                self.wake(instance, now)
            elif next_moved.migrating_to is not None:
                self.in_flight.remove(next_moved)
                self.copy_next(next_moved, now)
            elif next_moved.source_slot is None:
                self.in_flight.remove(next_moved)
                self.enter(next_moved, now)
            else:
                self.deliver(next_moved, now)

    def start_hour(self, now, target, forecast):
        self.hour_s, self.target, self.forecast = now, list(target), forecast
        if self.scaling in ("follow", "reflex"):
            self.follow(now)

    def monitor(self, now):
        self.monitor_s += self.rules.monitor_s
        if now - self.accounted_until_s >= 20 * self.rules.cooldown_s:
            self.before_s, self.accounted_until_s = self.accounted_until_s, now
        self.smooth()
        self.shift()
        if self.scaling == "hpa":
            self.wish(now)
        if self.scaling == "reflex":
            self.reflex(now)
        if self.scaling in ("follow", "reflex", "hpa"):
            self.follow(now)
        for llm in range(self.llms):
            while self.niw[llm] and self.aged(self.niw[llm][0], now):
                self.route(self.niw[llm].pop(0), now)
            self.release_kept(llm, now)
        for pool in range(self.pools):
            while not self.led(pool) and self.held(pool) < self.fleet.min_instances[pool]:
                if not self.add(pool, now):
                    break
            self.react(pool, now)
            self.pull(pool, now)

    def enter(self, request, now):
        self.legs_of[request.llm].append(request)
        if not any(self.suits(pool, request) for pool in range(self.pools)):
            request.refused = True
            self.spare(request)
        elif not self.interactive(request) and any(
            self.mixed(pool, request.llm) for pool in range(self.pools)
        ):
            self.niw[request.llm].append(request)
            for pool in self.preferred(request.llm, request.region):
                self.pull(pool, now)
        else:
            if self.interactive(request):
                self.arrivals[request.llm * self.regions + request.region].append((now, request.input_tokens))
            pool = self.route(request, now)
            if pool is not None:
                self.react(pool, now)

    # --- memory

    def serving(self, pool):
        return [i for i in self.by_pool[pool] if i.status == SERVING]

    def used_and_room(self, pool):
        serving = self.serving(pool)
        return sum(i.all_seen_kv for i in serving), len(serving) * self.whole_capacity(pool)

    def blocks_of(self, pool, tokens):
        """Blocks of a request with so many tokens in the cache: also those that it has at any length."""
        fixed = int(self.fleet.request_blocks[self.fleet.kind[pool]])
        return -(-tokens // self.fleet.kv_block_tokens) + fixed if tokens else 0

    def memory(self, pool, requests, more=0, other_holders=()):
        """Tokens of the blocks that hold the caches of an instance's requests, each with `more` tokens, and
        of those `next to` them; a hashed block that several hold is there once."""
        kept = [r.cached + self.drafts(r) + more for r in requests]
        kept += [r.held if self.drafts(r) else r.cached for r in other_holders]
        tokens = sum(self.blocks_of(pool, one) for one in kept) * self.fleet.kv_block_tokens
        refs = [one for r in [*requests, *other_holders] for one in r.refs]
        return tokens - (len(refs) - len(set(refs))) * self.fleet.prefix_block_tokens

    def drafts(self, request):
        """Draft tokens for which it has memory: of a decoding request."""
        if not self.any_drafts:
            return 0
        where = [i for i in self.instances if any(r is request for r in i.batch)]
        return self.draft_tokens(where[0].pool) if where else 0

    def draft_tokens(self, pool):
        return int(self.fleet.drafts.tokens[self.fleet.kind[pool]])

    def decode(self, instance, now):
        """One step of the decode batch."""
        made = self.fleet.drafts.made[self.fleet.kind[instance.pool]]
        at = instance.steps % (len(made) - 1)
        instance.steps += bool(self.unpaused(instance))
        for request in instance.batch:
            request.held = request.cached
        for request in self.unpaused(instance):
            request.held += 1 + self.draft_tokens(instance.pool)
            request.makes_tokens(now, int(made[at + 1] - made[at]))
            request.cached += int(made[at + 1] - made[at])

    def holding(self, instance):
        return self.memory(instance.pool, instance.batch + instance.joining + instance.outbound)

    def under(self, pool, share):
        used, room = self.used_and_room(pool)
        return used < share * room

    def slack(self, pool, share):
        used, room = self.signalled(pool)
        return used < share * room

    # --- routing

    def endpoint(self, pool):
        return self.fleet.llm[pool] * self.regions + self.fleet.region[pool]

    def capacity(self, pool):
        return int(self.fleet.kv_capacity[self.fleet.kind[pool]])

    def whole_capacity(self, pool):
        return self.capacity(pool) * int(self.fleet.ranks[self.fleet.kind[pool]])

    def interactive(self, request):
        return self.fleet.is_interactive[request.tier]

    def mixed(self, pool, llm):
        sorts = set(self.fleet.is_interactive[self.fleet.takes[pool]].tolist())
        return self.fleet.llm[pool] == llm and len(sorts) == 2

    def batch_only(self, pool):
        taken = self.fleet.takes[pool]
        return any(taken) and not any(taken & self.fleet.is_interactive)

    def suits(self, pool, request):
        """Whether the request may ever enter here: it fits this pool, and the one that it goes on to."""
        visited = [pool] if self.fleet.then[pool] < 0 else [pool, self.fleet.then[pool]]
        size = request.input_tokens + request.output_tokens
        is_entry = self.fleet.llm[pool] == request.llm and self.fleet.role[pool] != DECODE_ONLY
        size_there = [self.blocks_of(e, size + self.draft_tokens(e)) for e in visited]
        rooms = [self.capacity(e) // self.fleet.kv_block_tokens for e in visited]
        return is_entry and all(blocks <= room for blocks, room in zip(size_there, rooms, strict=True))

    def takes(self, pool, request):
        return self.fleet.takes[pool][request.tier] and self.suits(pool, request)

    def preferred(self, llm, origin):
        """The llm's pools: by region of preference, and in a region by pool."""
        regions = [r for r in self.fleet.preference[origin] if r >= 0]
        mine = [e for e in range(self.pools) if self.fleet.llm[e] == llm]
        return [e for region in regions for e in mine if self.fleet.region[e] == region]

    def route(self, request, now):
        if self.rules.uses_central_queue and any(r.level == request.level for r in self.kept[request.llm]):
            self.kept[request.llm].append(request)
            return None
        pool = self.chosen(request)
        if pool is None:
            self.stranded[request.llm].append(request)
        elif not self.may_leave(request, pool):
            self.kept[request.llm].append(request)
            return None
        else:
            self.dispatch(request, pool, now)
        return pool

    def chosen(self, request):
        where = self.preferred(request.llm, request.region)
        where = [e for e in where if self.serving(e) and self.takes(e, request)]
        if not where:
            return None
        free = [e for e in where if self.under(e, self.rules.route_utilisation_share)]
        used = {e: self.used_and_room(e) for e in where}
        pool = free[0] if free else min(where, key=lambda e: used[e][0] / used[e][1])
        if free and self.spread == "in_order":
            here = [e for e in free if self.endpoint(e) == self.endpoint(pool)]
            pool = next((e for e in here if self.keeps_up(e)), pool)
        if free and self.spread != "in_order":
            pool = self.distributed([e for e in where if self.endpoint(e) == self.endpoint(pool)], used)
        return pool

    def distributed(self, pools, used):
        """The pool that is next where the pools of an endpoint share its requests."""
        if self.spread == "most_unused":
            return max(pools, key=lambda e: (used[e][1] - used[e][0], -e))
        weights = {e: float(self.fleet.weight[e]) for e in pools}
        if self.spread == "goodput":
            weights = {e: weight * len(self.serving(e)) for e, weight in weights.items()}
        if self.spread == "round_robin":
            weights = dict.fromkeys(pools, 1.0)
        for pool, weight in weights.items():
            self.credit[pool] += weight
        chosen = max(pools, key=lambda e: (self.credit[e], -e))
        self.credit[chosen] -= sum(weights.values())
        return chosen

    def dispatch(self, request, pool, now):
        serving = self.serving(pool)
        if self.routing == "shortest_queue":
            instance = min(serving, key=lambda i: (*self.team_load(i), i.load(self.requests), i.slot))
        elif self.routing == "infaas":
            instance = self.cheapest(serving)
        elif self.routing == "freeness":
            instance = max(serving, key=lambda i: (self.freeness(i), -i.slot))
        elif self.routing == "least_work":
            reused = {i.slot: max(self.reusable(request, rank) for rank in i.ranks) for i in serving}
            work = {i.slot: i.load(self.requests) - reused[i.slot] for i in serving}
            instance = min(serving, key=lambda i: (work[i.slot], i.slot))
        elif self.routing == "least_prefill":
            instance = self.least_prefill(serving)
        elif self.routing == "least_kv":
            instance = min(serving, key=lambda i: (i.all_seen_kv, i.slot))
        else:
            after = [i for i in serving if i.slot > self.turn[pool]]
            instance = (after or serving)[0]
        self.turn[pool] = instance.slot
        self.send(request, instance, now)

    def least_prefill(self, serving):
        waits = {i.slot: i.waiting_tokens(self.requests) for i in serving}
        return min(serving, key=lambda i: (waits[i.slot], i.load(self.requests), i.slot))

    def send(self, request, instance, now):
        first, instance = instance, self.begins_at(instance)
        request.runs_both_phases, pool = instance is not first, instance.pool
        instance = min(instance.ranks, key=lambda rank: (rank.weight, rank.slot))
        request.hit_tokens_at_dispatch = self.reusable(request, instance)
        request.served_by, request.sent_from = instance.slot, -1
        if request.first_token_s is None:
            request.dispatched_s = now
        if self.interactive(request) and request.first_token_s is None:
            self.came[pool] += request.input_tokens
        self.come(request, instance, now)

    def come(self, request, instance, now):
        request.queued_s = now
        is_async = self.fleet.is_async[self.fleet.kind[instance.pool]]
        if is_async and (instance.joining or instance.batch or instance.ended):
            instance.unknown.append(request)
        else:
            instance.waiting.append(request)
            self.look_soon(instance, now)

    def notice(self, instance, until_s):
        """An async engine composes a step when the one before it begins: from those that had come by then."""
        known = [r for r in instance.unknown if r.queued_s <= until_s]
        instance.unknown = [r for r in instance.unknown if r.queued_s > until_s]
        instance.waiting += known
        instance.queue_dirty = instance.queue_dirty or bool(known)

    def look_soon(self, instance, now):
        instance.queue_dirty = True
        if not instance.whole.is_busy:
            instance.whole.wakes_s = now

    def fail(self, instance, now):
        if instance.status != SERVING:
            return
        team = [instance]
        if self.fleet.team[instance.pool]:
            leads = [e for e in range(self.pools) if instance.pool in (e, self.fleet.then[e])]
            teams = [one for e in leads if self.fleet.then[e] >= 0 for one in self.blocks(e)]
            team = [i for i in next(one for one in teams if instance in one) if i.status == SERVING]
        orphans = [r for member in team for r in self.lose_ranks(member, now)]
        for request in orphans:
            request.served_by = None
        for request in orphans:
            self.route(request, now)

    def lose_ranks(self, instance, now):
        """The VM is gone; the requests of all its ranks, in order of arrival."""
        self.change(instance, GONE, now)
        orphans = [r for rank in instance.ranks for r in self.lose(rank, now)]
        return sorted(orphans, key=lambda r: r.turn)

    def lose(self, instance, now):
        """A rank is gone; its requests, in order of arrival."""
        for request in instance.batch + [r for r in self.requests if r.migrating_to == instance.slot]:
            self.give_up(request)
        travelling = [r for r in self.in_flight if instance.slot in (r.source_slot, r.served_by)]
        for request in travelling:
            self.in_flight.remove(request)
            if request.source_slot != instance.slot:
                self.release(request, now)
            request.source_slot = None
        instance.waiting += instance.unknown
        hurt = (
            instance.batch
            + instance.joining
            + travelling
            + [r for r in instance.waiting if r.transferred_tokens]
        )
        orphans = sorted({r.turn: r for r in hurt + instance.waiting}.values(), key=lambda r: r.turn)
        for request in hurt:
            request.preemptions += 1
            request.cached = request.pending = request.transferred_tokens = 0
            request.refs = []
        instance.outbound, instance.out_free_s, instance.in_free_s = [], 0.0, 0.0
        instance.batch, instance.joining, instance.waiting, instance.unknown = [], [], [], []
        instance.wakes_s, instance.seen_kv, instance.queue_dirty = inf, 0, False
        return orphans

    def pull(self, pool, now):
        if self.batch_pull == "gaps":
            self.fill_gaps(pool, now)
            return
        two, one = self.rules.niw_pull_two_share, self.rules.niw_pull_one_share
        waiting = self.niw[self.fleet.llm[pool]]
        is_patient = bool(waiting) and now - waiting[0].arrival_s < 0.1 * self.rules.niw_priority_age_s
        spare = self.slack if is_patient else self.under
        pulls = 2 if spare(pool, two) else 1 if spare(pool, one) else 0
        for _ in range(pulls):
            if waiting and self.takes(pool, waiting[0]):
                self.dispatch(waiting.pop(0), pool, now)

    def fill_gaps(self, pool, now):
        waiting = self.niw[self.fleet.llm[pool]]
        while waiting and self.takes(pool, waiting[0]) and self.under(pool, self.rules.niw_pull_one_share):
            instance = self.least_prefill(self.serving(pool))
            if instance.waiting_tokens(self.requests):
                return
            kind, latency = self.fleet.slot_kind[instance.slot], self.fleet.latency
            rank = min(instance.ranks, key=lambda rank: (rank.weight, rank.slot))
            batch = min(len(rank.batch) + 1, latency.decode_s.shape[1] - 1)
            kv = rank.seen_kv + waiting[0].input_tokens
            if latency.decode_s[kind][batch] + latency.decode_kv_s[kind][batch] * kv > self.rules.pull_step_s:
                return
            self.send(waiting.pop(0), instance, now)

    # --- batching

    def aged(self, request, now):
        return now - request.arrival_s >= self.rules.niw_priority_age_s

    def wake(self, instance, now):
        changed = False
        if instance.status == BOOTING:
            self.change(instance, SERVING, now)
            instance.wakes_s = inf
            llm = self.fleet.llm[instance.pool]
            stranded, self.stranded[llm] = self.stranded[llm], []
            for request in stranded:
                self.route(request, now)
            changed = True
        elif instance.is_busy:
            for rank in instance.ranks:
                rank.composed_s = rank.began_s
            ended = [self.end_step(rank, now) for rank in instance.ranks]
            changed = any(ended)
        if changed and instance.status == SERVING:
            self.pull(instance.pool, now)
            self.release_kept(self.fleet.llm[instance.pool], now)
        begun = [self.begin(rank, now) for rank in instance.ranks]
        instance.wakes_s = now + self.step_s(instance, begun) if instance.is_busy else inf
        self.donate_when_empty(instance, now)

    def end_step(self, instance, now):
        """End the step of a rank; whether its batch changed."""
        changed = False
        if instance.joining:
            if instance.batch and self.batching[self.fleet.kind[instance.pool]] != "whole":
                self.decode(instance, now)
                changed = self.finish_decoded(instance, now)
            for request in instance.joining:
                request.pending -= instance.chunks[request.turn]
            prefilled = [r for r in instance.joining if r.pending == 0]
            for request in prefilled:
                request.makes_tokens(now)
                if request.first_token_s is None:
                    request.first_token_s = now
                if request.made == request.output_tokens:
                    self.finish([request], instance, now)
                    continue
                instance.joining.remove(request)
                if not self.sent(request, instance, now):
                    instance.batch.append(request)
                    request.held = request.cached
            changed = self.settle(instance, now) or changed or bool(prefilled)
        elif instance.batch:
            self.decode(instance, now)
            changed = self.finish_decoded(instance, now)
            changed = self.settle(instance, now) or changed
        if changed:
            instance.seen_kv = self.holding(instance)
        return changed

    def finish_decoded(self, instance, now):
        """Let those go that have decoded all their tokens; whether there were any."""
        done = [r for r in instance.batch if r.made == r.output_tokens]
        self.finish(sorted(done, key=lambda r: (-r.surplus, r.turn)), instance, now)
        return bool(done)

    def finish(self, done, instance, now):
        is_async = self.fleet.is_async[self.fleet.kind[instance.pool]]
        if done:
            self.forget(instance)
        for request in done:
            request.finish_s = now
            self.note_service(instance, now - request.dispatched_s)
            self.give_up(request)
            self.go_on(request, now)
            before, cached_before = self.holding(instance), len(instance.cache)
            (instance.batch if request in instance.batch else instance.joining).remove(request)
            self.leave(request, instance, request.cached - request.surplus)
            instance.queue_dirty = True
            if is_async:
                kept = (len(instance.cache) - cached_before) * self.fleet.prefix_block_tokens
                held = before - self.holding(instance)
                instance.ended, instance.ended_held[request.turn] = instance.ended + 1, (held, held - kept)

    def settle(self, instance, now):
        """Preempt while the next step does not fit; whether the batch changed."""
        instance.paused = []
        changed = self.let_go(instance, now)
        instance.chunk_limit = self.chunk_limit(instance)
        if self.next_step_tokens(instance) > self.capacity(instance.pool):
            self.forget(instance)
            if self.is_chunked(instance) and self.by_level:
                return self.preempt_by_level(instance) or changed
        has_limit = self.fleet.long_prefill_token_threshold[self.fleet.kind[instance.pool]] > 0
        while self.next_step_tokens(instance) > self.capacity(instance.pool):
            held = instance.batch + instance.joining
            if not held:
                break
            first = [] if has_limit else instance.joining
            level = {r.turn: 0 if r in instance.joining else self.by_level * r.level for r in held}
            victim = max(held, key=lambda r: (r in first, level[r.turn], r.admission_turn))
            if self.is_chunked(instance) and self.free_ended(instance, victim, lambda r: r.admission_turn):
                instance.has_preempted = True
                continue
            if self.is_safe(instance):
                break
            self.preempt(victim, instance)
            changed, instance.has_preempted = True, self.is_chunked(instance)
        return changed

    def is_chunked(self, instance):
        return self.batching[self.fleet.kind[instance.pool]] == "chunked"

    def room(self, instance):
        """Prompt tokens that the next step may compute next to its decode batch."""
        budget = int(self.fleet.max_prefill_tokens[self.fleet.kind[instance.pool]])
        tokens = len(instance.batch) * (1 + self.draft_tokens(instance.pool))
        return max(1, budget - tokens) if self.is_chunked(instance) else inf

    def is_safe(self, instance):
        """Whether nothing is preempted: a single request always fits, but where caches are being sent."""
        held = instance.batch + instance.joining
        return not held or (len(held) == 1 and not instance.outbound)

    def unpaused(self, instance):
        return [r for r in instance.batch if r not in instance.paused]

    def chunk_limit(self, instance):
        """Most prompt tokens of one request in the next step, unless it is alone."""
        threshold = int(self.fleet.long_prefill_token_threshold[self.fleet.kind[instance.pool]])
        known = len(instance.batch + instance.joining + instance.waiting) + instance.ended
        return threshold if threshold and known > 1 else inf

    def next_chunks(self, instance):
        """Prompt tokens of the next step by request: in order of admission, while the budget lasts."""
        room, chunks = self.room(instance), {}
        for request in instance.joining:
            is_paused = request in instance.paused
            chunks[request.turn] = 0 if is_paused else min(request.pending, instance.chunk_limit, room)
            room -= chunks[request.turn]
        return chunks

    def after_chunk(self, request, instance):
        """Tokens of an unfinished prompt that need memory in the next step."""
        done = request.input_tokens + request.made - request.pending
        return done + self.next_chunks(instance)[request.turn]

    def next_step_tokens(self, instance, without=()):
        """Tokens of the blocks of the next step, without cached blocks that no request holds, and without
        the new ones of some requests."""
        batch = [r for r in instance.batch if r not in without]
        others = [r for r in instance.batch if r in without]
        tokens = self.memory(instance.pool, batch, 1, others + instance.joining + instance.outbound)
        if self.is_chunked(instance):
            block = self.fleet.kv_block_tokens
            tokens += instance.ended_tokens
            for request in instance.joining:
                if request not in without:
                    after = self.blocks_of(instance.pool, self.after_chunk(request, instance))
                    tokens += (after - self.blocks_of(instance.pool, request.cached)) * block
        return tokens

    def preempt(self, victim, instance):
        """It loses its cache and waits again."""
        (instance.batch if victim in instance.batch else instance.joining).remove(victim)
        self.give_up(victim)
        prompt = victim.input_tokens + victim.made
        self.leave(victim, instance, victim.cached if victim.pending == 0 else prompt - victim.pending)
        victim.cached = victim.pending = 0
        victim.preemptions += 1
        instance.waiting.append(victim)
        instance.queue_dirty = True

    def step_s(self, instance, begun):
        """Seconds of a step: of its slowest rank, or of that one's own part and of all ranks' experts."""
        kind, slowest_s = self.fleet.kind[instance.pool], max(seconds for seconds, _ in begun)
        tokens, latency = [tokens for _, tokens in begun], self.fleet.latency
        is_prefill = any(rank.joining or rank.paused for rank in instance.ranks)
        if not is_prefill or max(tokens) <= min(512, 2 * self.fleet.max_batch[kind]):
            return slowest_s
        expert_s = (latency.expert_s, latency.expert_slope)
        own_s = [seconds - self.at_knots(kind, *expert_s, count) for seconds, count in begun]
        return max(0.0, *own_s) + self.at_knots(kind, *expert_s, sum(tokens) / len(tokens))

    def begin(self, instance, now):
        """Compose the next step of a rank; its seconds and tokens."""
        kind = self.fleet.kind[instance.pool]
        batching = self.batching[kind]
        self.notice(instance, instance.composed_s)
        if not (instance.batch or instance.joining):
            instance.has_preempted = False
            if not instance.waiting:  # no step was composed while the last request ran
                self.forget_ended(instance)
                self.notice(instance, now)
        instance.chunk_limit = self.chunk_limit(instance)
        if instance.joining and self.is_chunked(instance):
            for request in instance.joining:
                request.cached = self.after_chunk(request, instance)
                self.hold_blocks(request, instance)
            instance.seen_kv = self.holding(instance)
        if instance.queue_dirty and not instance.has_preempted:
            self.admit(instance, now)
            if instance.ended and not (instance.batch or instance.joining):  # that step holds none
                self.forget_ended(instance)
                self.notice(instance, now)
                instance.chunk_limit = self.chunk_limit(instance)
                self.admit(instance, now)
        if instance.ended:
            instance.queue_dirty = bool(instance.waiting)
            self.forget_ended(instance)
        instance.has_preempted = False
        assert self.holding(instance) <= self.capacity(instance.pool), "invariant 3: what is held fits"
        b, latency = len(self.unpaused(instance)), self.fleet.latency
        kv = sum(r.cached for r in self.unpaused(instance))
        instance.chunks = self.next_chunks(instance)
        chunk = sum(instance.chunks.values())
        instance.began_s = now
        tokens = chunk if batching == "whole" else chunk + b * (1 + self.draft_tokens(instance.pool))
        if chunk:
            if batching == "whole" or b == 0:
                seconds = self.prefill_s(kind, chunk)
            else:
                seconds = self.prefill_s(kind, tokens)
                seconds += float(self.fleet.drafts.draft_s[kind])
                seconds = max(seconds, float(latency.decode_s[kind][b]))
                seconds += float(latency.decode_kv_s[kind][b] * kv)
            for request in instance.joining:
                context = request.input_tokens + request.made - request.pending
                seconds += float(latency.prefill_context_s[kind]) * instance.chunks[request.turn] * context
            return seconds, tokens
        if instance.batch:
            return float(latency.decode_s[kind][b] + latency.decode_kv_s[kind][b] * kv), tokens
        return 0.0, 0

    def forget_ended(self, instance):
        instance.ended, instance.ended_held = 0, {}

    def free_ended(self, instance, victim, rank):
        """An ended request that is preempted before the victim gives its memory; whether there is one."""
        ended = [self.requests[turn] for turn in instance.ended_held]
        last = max(ended, key=rank, default=victim)
        if rank(last) <= rank(victim):
            return False
        del instance.ended_held[last.turn]
        return True

    def admit(self, instance, now):
        instance.queue_dirty = False
        capacity, kind = self.capacity(instance.pool), self.fleet.kind[instance.pool]
        self.forget(instance, 1)
        while instance.waiting:
            limit = instance.chunk_limit
            room = self.room(instance) - sum(min(r.pending, limit) for r in instance.joining)
            if room <= 0:
                instance.queue_dirty = True
                return
            request = min(instance.waiting, key=lambda r: self.precedence(r, now))
            prompt = request.input_tokens + request.made
            members = len(instance.batch) + len(instance.joining) + instance.ended + 1
            held, block = [*instance.batch, *instance.joining], self.fleet.kv_block_tokens
            is_chunked = self.is_chunked(instance)
            growing = instance.batch if is_chunked else held
            constant = [r for r in [*held, *instance.outbound] if r not in growing]
            needed = self.memory(instance.pool, growing, 1, constant) + is_chunked * instance.ended_tokens
            more = 0 if is_chunked and not request.transferred_tokens else 1
            more += self.draft_tokens(instance.pool) if request.transferred_tokens else 0
            needed += self.blocks_of(instance.pool, (request.transferred_tokens or prompt) + more) * block
            reused = 0 if request.transferred_tokens else self.reusable(request, instance)
            if not request.transferred_tokens:
                others = self.held_hashes(instance)
                needed -= len(others & set(self.reusable_hashes(request))) * self.fleet.prefix_block_tokens
            if is_chunked and members > 1:
                needed += int(self.fleet.watermark_blocks[kind]) * block
            if self.batching[kind] == "orca":
                longest = [r.input_tokens + r.output_tokens for r in [*held, *instance.outbound, request]]
                needed = sum(self.blocks_of(instance.pool, tokens) * block for tokens in longest)
            if members > self.fleet.max_batch[kind] or needed > capacity:
                if self.order == "preemptive" and self.make_way(request, instance):
                    instance.seen_kv = self.holding(instance)
                    continue
                return
            if (
                self.batching[kind] == "whole"
                and instance.joining
                and not request.transferred_tokens
                and sum(r.pending for r in instance.joining) + prompt - reused
                > self.fleet.max_prefill_tokens[kind]
            ):
                instance.queue_dirty = True
                return
            instance.waiting.remove(request)
            if request.transferred_tokens:
                instance.batch.append(request)
                request.cached = request.held = request.transferred_tokens
                request.transferred_tokens, request.joined_s = 0, now
            else:
                instance.joining.append(request)
                request.pending, request.reused = prompt - reused, reused
                request.cached = reused + min(prompt - reused, limit, room)
                request.refs = self.hashes(request, reused + self.fleet.prefix_block_tokens - 1)
                instance.cache = [one for one in instance.cache if one not in request.refs]
                self.hold_blocks(request, instance)
            self.forget(instance)
            self.admissions += 1
            request.admission_turn = self.admissions
            instance.seen_kv = self.holding(instance)

    def precedence(self, request, now):
        """Who goes first, as a tuple: priority 0 before 1, then the policy's order, then arrival."""
        due_s = request.arrival_s + float(self.rules.allowance_s[request.tier])
        left_s = due_s - now
        if self.by_level:
            risen = int((now - request.arrival_s) / self.rules.promote_s) * (self.order == "priority")
            return (max(0, request.level - risen), request.turn)
        if not self.interactive(request) and not self.aged(request, now):
            return (1, 0, due_s if self.order == "edf" else 0, request.turn)
        if self.order == "edf":
            return (0, 0, due_s, request.turn)
        urgency = self.urgency(request)
        if self.order == "pf":
            return (0, urgency, 0, request.turn)
        if self.order == "dpa":
            if left_s < -self.rules.tau_n_s:
                return (0, 0, 0, request.turn)
            expired, urgent = left_s < 0, left_s <= self.rules.tau_p_s
            return (0, 3 if expired else 1 if urgent else 2, 0 if expired else urgency, request.turn)
        return (0, 0, 0, request.turn)

    def urgency(self, request):
        """How many interactive tiers are due before it; the others come with the last of them."""
        due_s, sort = self.rules.allowance_s, self.fleet.is_interactive
        dues = sorted({float(due) for due in due_s[sort]})
        return dues.index(float(due_s[request.tier])) if sort[request.tier] else max(len(dues) - 1, 0)

    def prefill_s(self, kind, tokens):
        return self.at_knots(kind, self.fleet.latency.prefill_s, self.fleet.latency.prefill_slope, tokens)

    def at_knots(self, kind, seconds, slope, tokens):
        knots = self.fleet.latency.prefill_tokens[kind]
        knot = max(k for k, x in enumerate(knots) if x <= tokens)
        return float(seconds[kind][knot] + (tokens - knots[knot]) * slope[kind][knot])


def replay(rows, fleet, rules, policies, plan, horizon_s, tail_s, hour_s, moves=()):
    """Play `rows` of (arrival_s, region, llm, tier, input, output, next leg, leg, score, cached, hashes).

    policies = names of (scaling, order, batching by kind, routing, spread, prefix, signal, batch pull);
    plan = (targets, forecasts, start);
    moves = for each hour the (request, slot) of the live moves that are requested for when it begins.
    """
    targets, forecasts, start = plan
    run = Replay(rows, fleet, rules, policies, start)
    for hour in range(len(targets)):
        for request, slot in moves[hour] if moves else ():
            run.ask(run.requests[request], slot, hour * hour_s)
        run.start_hour(hour * hour_s, targets[hour], forecasts[hour])
        until_s = min((hour + 1) * hour_s, horizon_s)
        run.advance(until_s)
        for instance in run.instances:
            run.account(instance, until_s)
    spent = [list(row) for row in run.spent]
    rented_s = run.rented_s + sum(horizon_s - since_s for since_s in run.rented_from_s.values())
    assert sum(map(sum, spent)) == rented_s, "invariant 5: time by state is the time of the VMs"
    run.advance(horizon_s + tail_s, until_ended=True)
    return run.requests, spent
