"""The replay, slowly and plainly: every decode step is played, every total is summed anew.

Written from the definitions, not from the kernel; standard library only. It reads the same Fleet and
Rules and must give the same outcome, to the last bit on a binary time grid.
"""

from dataclasses import dataclass, field
from math import inf

GONE, SERVING, BOOTING, DRAINING, DONATED = range(5)
NIW = 2


@dataclass
class Request:
    turn: int
    arrival_s: float
    region: int
    llm: int
    tier: int
    input_tokens: int
    output_tokens: int
    made: int = 0  # output tokens so far
    cached: int = 0  # KV tokens it holds
    pending: int = 0  # prompt tokens not yet prefilled
    admitted: int = 0
    preemptions: int = 0
    refused: bool = False
    first_token_s: float | None = None
    finish_s: float | None = None
    served_by: int | None = None


@dataclass
class Instance:
    slot: int
    endpoint: int
    status: int
    wakes_s: float = inf
    since_s: float = 0.0
    joining: list = field(default_factory=list)  # being prefilled
    batch: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    seen_kv: int = 0
    look: bool = False
    chunk: int = 0

    def kv(self):
        return sum(r.cached for r in self.joining + self.batch)

    def load(self, requests):
        return sum(
            r.input_tokens + r.output_tokens for r in requests if r.served_by == self.slot and not r.finish_s
        )


class Replay:
    def __init__(self, rows, fleet, rules, policies, start):
        self.requests = [Request(turn, *row) for turn, row in enumerate(rows)]
        self.fleet, self.rules = fleet, rules
        self.scaling, self.order, self.batching, self.routing = policies
        self.failures = list(zip(rules.failure_s.tolist(), rules.failure_slot.tolist(), strict=True))
        self.turn = [int(end) - 1 for end in fleet.slots[1:]]
        self.regions, self.llms = len(fleet.preference), len(fleet.gpus)
        self.endpoints = self.regions * self.llms
        self.instances = []
        for endpoint in range(self.endpoints):
            for n in range(fleet.slots[endpoint + 1] - fleet.slots[endpoint]):
                status = SERVING if n < start[endpoint] else DONATED if n < fleet.instances_at_start else GONE
                self.instances.append(Instance(len(self.instances), endpoint, status))
        self.niw = [[] for _ in range(self.llms)]
        self.stranded = [[] for _ in range(self.llms)]
        self.cooldown = [0.0] * self.endpoints
        self.spent = [[0.0] * 4 for _ in range(self.endpoints)]
        self.target, self.forecast = [0] * self.endpoints, [0.0] * self.endpoints
        self.seen = [0] * self.endpoints
        self.hour_s = self.monitor_s = 0.0
        self.booted = self.admissions = 0
        self.coming = list(self.requests)

    # --- the clock: control tick, monitor tick, failures, arrivals, instances by slot

    def advance(self, until_s, until_ended=False):
        while not (until_ended and all(r.finish_s or r.refused for r in self.requests)):
            instance = min(self.instances, key=lambda i: (i.wakes_s, i.slot))
            arrival_s = self.coming[0].arrival_s if self.coming else inf
            failure_s = self.failures[0][0] if self.failures else inf
            now = min(self.monitor_s, failure_s, arrival_s, instance.wakes_s)
            if now >= until_s:
                break
            if now == self.monitor_s:
                self.monitor(now)
            elif now == failure_s:
                self.fail(self.instances[self.failures.pop(0)[1]], now)
            elif now == arrival_s:
                self.arrive(self.coming.pop(0), now)
            else:
                self.wake(instance, now)

    def start_hour(self, now, target, forecast):
        self.hour_s, self.target, self.forecast = now, target, forecast
        self.seen = [0] * self.endpoints
        if self.scaling == "follow":
            self.follow(now)

    def monitor(self, now):
        self.monitor_s += self.rules.monitor_s
        if self.scaling == "follow":
            self.follow(now)
        for llm in range(self.llms):
            while self.niw[llm] and self.aged(self.niw[llm][0], now):
                self.route(self.niw[llm].pop(0), now)
        for endpoint in range(self.endpoints):
            self.react(endpoint, now)
            self.pull(endpoint, now)

    def arrive(self, request, now):
        if request.input_tokens + request.output_tokens > self.fleet.kv_capacity[request.llm]:
            request.refused = True
        elif request.tier == NIW:
            self.niw[request.llm].append(request)
            for region in self.preference(request.region):
                self.pull(request.llm * self.regions + region, now)
        else:
            self.seen[request.llm * self.regions + request.region] += request.input_tokens
            endpoint = self.route(request, now)
            if endpoint is not None:
                self.react(endpoint, now)

    # --- memory

    def serving(self, endpoint):
        return [i for i in self.instances if i.endpoint == endpoint and i.status == SERVING]

    def used_and_room(self, endpoint):
        serving = self.serving(endpoint)
        return sum(i.seen_kv for i in serving), len(serving) * self.fleet.kv_capacity[
            endpoint // self.regions
        ]

    def under(self, endpoint, share):
        used, room = self.used_and_room(endpoint)
        return used < share * room

    # --- routing

    def preference(self, origin):
        return [r for r in self.fleet.preference[origin] if r >= 0]

    def route(self, request, now):
        where = [request.llm * self.regions + r for r in self.preference(request.region)]
        where = [e for e in where if self.serving(e)]
        if not where:
            self.stranded[request.llm].append(request)
            return None
        free = [e for e in where if self.under(e, self.rules.route_utilisation_share)]
        used = {e: self.used_and_room(e) for e in where}
        endpoint = free[0] if free else min(where, key=lambda e: used[e][0] / used[e][1])
        self.dispatch(request, endpoint, now)
        return endpoint

    def dispatch(self, request, endpoint, now):
        serving = self.serving(endpoint)
        if self.routing == "shortest_queue":
            instance = min(serving, key=lambda i: (i.load(self.requests), i.slot))
        elif self.routing == "least_kv":
            instance = min(serving, key=lambda i: (i.seen_kv, i.slot))
        else:
            after = [i for i in serving if i.slot > self.turn[endpoint]]
            instance = (after or serving)[0]
        self.turn[endpoint] = instance.slot
        request.served_by = instance.slot
        instance.waiting.append(request)
        instance.look = True
        if not instance.joining and not instance.batch:
            instance.wakes_s = now

    def fail(self, instance, now):
        if instance.status != SERVING:
            return
        self.change(instance, GONE, now)
        orphans = sorted(instance.batch + instance.joining + instance.waiting, key=lambda r: r.turn)
        for request in instance.batch + instance.joining:
            request.preemptions += 1
            request.cached = request.pending = 0
        instance.batch, instance.joining, instance.waiting = [], [], []
        instance.wakes_s, instance.seen_kv, instance.look = inf, 0, False
        for request in orphans:
            request.served_by = None
        for request in orphans:
            self.route(request, now)

    def pull(self, endpoint, now):
        two, one = self.rules.niw_pull_two_share, self.rules.niw_pull_one_share
        pulls = 2 if self.under(endpoint, two) else 1 if self.under(endpoint, one) else 0
        for _ in range(pulls):
            if self.niw[endpoint // self.regions]:
                self.dispatch(self.niw[endpoint // self.regions].pop(0), endpoint, now)

    # --- batching

    def aged(self, request, now):
        return now - request.arrival_s >= self.rules.niw_priority_age_s

    def wake(self, instance, now):
        changed = False
        if instance.status == BOOTING:
            self.change(instance, SERVING, now)
            instance.wakes_s = inf
            stranded, self.stranded[instance.endpoint // self.regions] = (
                self.stranded[instance.endpoint // self.regions],
                [],
            )
            for request in stranded:
                self.route(request, now)
            changed = True
        elif instance.joining:
            if self.batching != "whole":
                for request in instance.batch:
                    request.made += 1
                    request.cached += 1
            chunk = instance.chunk
            for request in instance.joining:
                done = min(chunk, request.pending)
                request.pending -= done
                chunk -= done
            prefilled = [r for r in instance.joining if r.pending == 0]
            for request in prefilled:
                request.made += 1
                instance.joining.remove(request)
                if request.first_token_s is None:
                    request.first_token_s = now
            instance.batch += prefilled
            changed = self.settle(instance, now) or bool(prefilled)
        elif instance.batch:
            for request in instance.batch:
                request.made += 1
                request.cached += 1
            changed = self.settle(instance, now)
        if changed:
            instance.seen_kv = instance.kv()
            if instance.status == SERVING:
                self.pull(instance.endpoint, now)
        self.begin(instance, now)
        self.donate_when_empty(instance, now)

    def settle(self, instance, now):
        """Let the finished go and preempt while the next step does not fit; whether the batch changed."""
        changed = False
        for request in [r for r in instance.batch if r.made == r.output_tokens]:
            request.finish_s = now
            instance.batch.remove(request)
            instance.look = changed = True
        capacity = self.fleet.kv_capacity[instance.endpoint // self.regions]
        while instance.kv() + len(instance.batch) > capacity:
            held = instance.batch + instance.joining
            if len(held) == 1:
                break
            victim = max(held, key=lambda r: r.admitted)
            (instance.batch if victim in instance.batch else instance.joining).remove(victim)
            victim.cached = 0
            victim.preemptions += 1
            instance.waiting.append(victim)
            instance.look = changed = True
        return changed

    def begin(self, instance, now):
        llm = instance.endpoint // self.regions
        if instance.look:
            self.admit(instance, now)
        b, latency = len(instance.batch), self.fleet.latency
        if instance.joining:
            instance.chunk = sum(r.pending for r in instance.joining)
            if self.batching == "chunked":
                instance.chunk = min(instance.chunk, max(1, self.fleet.max_prefill_tokens - b))
            if self.batching == "whole" or b == 0:
                seconds = self.prefill_s(llm, instance.chunk)
            else:
                seconds = max(self.prefill_s(llm, instance.chunk + b), float(latency.decode_s[llm][b]))
                seconds += float(latency.decode_kv_s[llm][b] * instance.kv())
            instance.wakes_s = now + seconds
        elif instance.batch:
            instance.wakes_s = now + float(
                latency.decode_s[llm][b] + latency.decode_kv_s[llm][b] * instance.kv()
            )
        else:
            instance.wakes_s = inf

    def admit(self, instance, now):
        instance.look = False
        capacity = self.fleet.kv_capacity[instance.endpoint // self.regions]
        while instance.waiting:
            request = min(instance.waiting, key=lambda r: self.precedence(r, now))
            prompt = request.input_tokens + request.made
            members = len(instance.batch) + len(instance.joining) + 1
            needed = instance.kv() + prompt + members
            if self.batching == "orca":
                held = [*instance.batch, *instance.joining, request]
                needed = sum(r.input_tokens + r.output_tokens for r in held)
            if members > self.fleet.max_batch or needed > capacity:
                return
            if (
                self.batching == "whole"
                and instance.joining
                and sum(r.cached for r in instance.joining) + prompt > self.fleet.max_prefill_tokens
            ):
                instance.look = True
                return
            instance.waiting.remove(request)
            instance.joining.append(request)
            request.cached = request.pending = prompt
            self.admissions += 1
            request.admitted = self.admissions
            instance.seen_kv = instance.kv()

    def precedence(self, request, now):
        """Who goes first, as a tuple: priority 0 before 1, then the policy's order, then arrival."""
        due_s = request.arrival_s + float(self.rules.allowance_s[request.tier])
        left_s = due_s - now
        if request.tier == NIW and not self.aged(request, now):
            return (1, 0, due_s if self.order == "edf" else 0, request.turn)
        if self.order == "edf":
            return (0, 0, due_s, request.turn)
        if self.order == "pf":
            return (0, request.tier != 0, 0, request.turn)
        if self.order == "dpa":
            is_fast = request.tier == 0
            classes = [
                left_s < -self.rules.tau_n_s,
                is_fast and 0 <= left_s <= self.rules.tau_p_s,
                not is_fast and 0 <= left_s <= self.rules.tau_p_s,
                is_fast and left_s > self.rules.tau_p_s,
                not is_fast and left_s > self.rules.tau_p_s,
                -self.rules.tau_n_s <= left_s < 0,
            ]
            return (0, classes.index(True), 0, request.turn)
        return (0, 0, 0, request.turn)

    def prefill_s(self, llm, tokens):
        latency = self.fleet.latency
        knot = max(k for k, x in enumerate(latency.prefill_tokens[llm]) if x <= tokens)
        beyond = tokens - latency.prefill_tokens[llm][knot]
        return float(latency.prefill_s[llm][knot] + beyond * latency.prefill_slope[llm][knot])

    # --- the fleet

    def change(self, instance, status, now):
        self.account(instance, now)
        instance.status = status

    def account(self, instance, now):
        if instance.status != GONE:
            self.spent[instance.endpoint][instance.status - 1] += now - instance.since_s
        instance.since_s = now

    def of(self, endpoint, *statuses):
        return [i for i in self.instances if i.endpoint == endpoint and i.status in statuses]

    def held(self, endpoint):
        return len(self.of(endpoint, SERVING, BOOTING))

    def add(self, endpoint, now):
        if self.held(endpoint) >= self.fleet.max_instances:
            return False
        if self.of(endpoint, DRAINING):
            self.change(self.of(endpoint, DRAINING)[0], SERVING, now)
            return True
        if self.of(endpoint, DONATED):
            instance = self.of(endpoint, DONATED)[0]
            delay_s = float(self.fleet.boot_spot_s[self.booted % len(self.fleet.boot_spot_s)])
        elif self.of(endpoint, GONE) and self.make_room(endpoint, now):
            instance = self.of(endpoint, GONE)[0]
            delay_s = float(self.fleet.boot_cold_s[endpoint])
        else:
            return False
        self.booted += 1
        self.change(instance, BOOTING, now)
        instance.wakes_s = now + delay_s
        return True

    def make_room(self, endpoint, now):
        fleet, region, gpu = self.fleet, endpoint % self.regions, self.fleet.gpu[endpoint // self.regions]
        peers = [llm for llm in range(self.llms) if fleet.gpu[llm] == gpu]
        there = [i for llm in peers for i in self.instances if i.endpoint == llm * self.regions + region]
        donated = [i for i in there if i.status == DONATED]

        def gpus(instances):
            return sum(fleet.gpus[i.endpoint // self.regions] for i in instances)

        short = gpus(i for i in there if i.status != GONE) + fleet.gpus[endpoint // self.regions]
        short -= fleet.cap_gpus[region][gpu]
        if gpus(donated) < short:
            return False
        while short > 0:
            most = max(peers, key=lambda llm: (len(self.of(llm * self.regions + region, DONATED)), -llm))
            self.change(self.of(most * self.regions + region, DONATED)[0], GONE, now)
            short -= fleet.gpus[most]
        return True

    def remove(self, endpoint, now):
        if self.held(endpoint) <= self.fleet.min_instances:
            return False
        if self.of(endpoint, BOOTING):
            instance = self.of(endpoint, BOOTING)[0]
            instance.wakes_s = inf
            self.change(instance, DONATED, now)
            return True
        instance = min(self.of(endpoint, SERVING), key=lambda i: (i.load(self.requests), -i.slot))
        self.change(instance, DRAINING, now)
        self.donate_when_empty(instance, now)
        return True

    def donate_when_empty(self, instance, now):
        if instance.status == DRAINING and not (instance.joining or instance.batch or instance.waiting):
            self.change(instance, DONATED, now)

    def follow(self, now):
        for endpoint in range(self.endpoints):
            while self.held(endpoint) > self.target[endpoint] and self.remove(endpoint, now):
                pass
        for endpoint in range(self.endpoints):
            while self.held(endpoint) < self.target[endpoint] and self.add(endpoint, now):
                pass

    def react(self, endpoint, now):
        if self.scaling == "follow" or now < self.cooldown[endpoint]:
            return
        rules, count, target = self.rules, self.held(endpoint), self.target[endpoint]
        used, room = self.used_and_room(endpoint)
        grow, shrink = used > rules.scale_out_share * room, used < rules.scale_in_share * room
        if self.scaling in ("lt_u", "lt_ua"):
            grow, shrink = grow and count < target, shrink and count > target
        if self.scaling == "lt_ua" and now - self.hour_s >= rules.correction_s:
            predicted, seen = self.forecast[endpoint] * (now - self.hour_s), self.seen[endpoint]
            if count >= target and 0 < seen >= rules.surge_ratio * predicted:
                grow = grow or used >= rules.scale_in_share * room
            if count <= target and seen <= rules.slump_ratio * predicted:
                shrink = shrink or used <= rules.scale_out_share * room
        acted = (grow and self.add(endpoint, now)) or (not grow and shrink and self.remove(endpoint, now))
        if acted:
            self.cooldown[endpoint] = now + rules.cooldown_s


def replay(rows, fleet, rules, policies, plan, horizon_s, tail_s, hour_s):
    """Play `rows` of (arrival_s, region, llm, tier, input, output).

    policies = names of (scaling, order, batching, routing); plan = (targets, forecasts, start).
    """
    targets, forecasts, start = plan
    run = Replay(rows, fleet, rules, policies, start)
    for hour in range(len(targets)):
        run.start_hour(hour * hour_s, targets[hour], forecasts[hour])
        until_s = min((hour + 1) * hour_s, horizon_s)
        run.advance(until_s)
        for instance in run.instances:
            run.account(instance, until_s)
    spent = [list(row) for row in run.spent]
    run.advance(horizon_s + tail_s, until_ended=True)
    return run.requests, spent
