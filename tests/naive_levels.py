"""Levels, freeness and balancing of the naive twin: every tick is evaluated, every sum made anew."""

from math import inf

from naive_fleet import DRAINING, SERVING


class NaiveLevels:
    def needed(self, request, pool):
        """Blocks that one who waits would take."""
        tokens = request.transferred_tokens or request.input_tokens + request.made
        return self.blocks_of(pool, tokens + 1)

    def lane(self, request):
        return request.level if self.by_level else request.tier

    def freeness(self, instance, keeps_headroom=True, other_holders=0):
        """(M - V) / B."""
        block = self.fleet.kv_block_tokens
        there = self.capacity(instance.pool) // block
        waiting = instance.waiting + instance.unknown
        first = sorted(instance.waiting, key=lambda r: (self.lane(r), r.turn))[:1]
        demand = sum(self.needed(r, instance.pool) for r in (first if self.rules.demand == 0 else waiting))
        levels = {r.level for r in self.assigned(instance)}
        shares = enumerate(self.rules.headroom_share.tolist()) if keeps_headroom else ()
        headroom = sum(share for p, share in shares if p in levels) * there
        running = len(instance.batch) + len(instance.joining)
        free = there - self.holding(instance) // block - demand - headroom
        return (free - other_holders) / (running + 1) if other_holders else free / max(1, running)

    def assigned(self, instance):
        """Those that are here, or whose cache is on its way here."""
        here = instance.batch + instance.joining + instance.outbound + instance.waiting + instance.unknown
        return here + [
            r for r in self.in_flight if r.served_by == instance.slot and r.source_slot is not None
        ]

    # --- INFaaS, holdback

    def cheapest(self, serving):
        def state(i):
            count = len(self.assigned(i))
            if i.service_s > 1.3 and count > 2:
                return 1.0
            return 0.5 if i.service_s > 1.15 and count <= 1 else 0.0

        def cost(i):
            return len(self.assigned(i)) + i.service_s + state(i)

        return min(serving, key=lambda i: (state(i) > 0, cost(i), i.slot))

    def note_service(self, instance, seconds):
        before = instance.service_s
        instance.service_s = 0.6 * seconds + (1.0 - 0.6) * before if before else seconds

    def may_leave(self, request, pool):
        if not self.rules.uses_central_queue:
            return True
        total, serving = 0.0, self.serving(pool)
        for i in serving:
            ranks = [(len(self.assigned(r)), len(r.batch + r.joining + r.outbound)) for r in i.ranks]
            waiting = sum(assigned - held for assigned, held in ranks)
            total += max(waiting / 5.0, i.all_seen_kv / self.whole_capacity(pool) / 0.8)
        return total / len(serving) < self.rules.ceiling_share[request.level]

    def release_kept(self, llm, now):
        for level in range(10):
            for request in [r for r in self.kept[llm] if r.level == level]:
                pool = self.chosen(request)
                if pool is None or not self.may_leave(request, pool):
                    break
                self.kept[llm].remove(request)
                self.dispatch(request, pool, now)

    def by_freeness(self, pool, now):
        means = [self.freeness(i, keeps_headroom=False) for i in self.serving(pool)]
        total = 0.0
        for each in means:
            total += each
        mean = total / max(1, len(means))
        return mean < self.rules.freeness_out, mean > self.rules.freeness_in

    def make_way(self, request, instance):
        last = instance.joining[-1:]
        if last and last[0].level > request.level:
            self.preempt(last[0], instance)
            return True
        lower = [r for r in instance.batch if r.level > request.level]
        if lower:
            self.preempt(max(lower, key=lambda r: (r.level, r.admission_turn)), instance)
        return bool(lower)

    def preempt_by_level(self, instance):
        """The running requests get memory for the next step in the order of admission, as under vLLM's policy
        "priority"; whether any was preempted."""
        changed, instance.has_preempted = False, False
        behind, step = sorted(instance.batch + instance.joining, key=lambda r: r.admission_turn), []
        while behind:
            request = behind.pop(0)
            step.append(request)
            while request in step and not self.is_safe(instance):
                if self.next_step_tokens(instance, behind) <= self.capacity(instance.pool):
                    break
                victim = max(step + behind, key=lambda r: (r.level, r.turn))
                if self.free_ended(instance, victim, lambda r: (r.level, r.turn)):
                    instance.has_preempted = True
                    continue
                step, behind = ([r for r in some if r is not victim] for some in (step, behind))
                self.preempt(victim, instance)
                changed = instance.has_preempted = True
            if request not in step and step:
                instance.paused = behind
                break
            if request not in step:  # an empty step is composed anew
                instance.has_preempted, instance.composed_s = False, inf
                self.forget_ended(instance)
        return changed

    # --- moves

    def balance(self, now):
        for pool in range(self.pools):
            paired = set()
            while True:
                free = [i for i in self.serving(pool) if i.slot not in paired and not self.in_move(i)]
                drains = [i for i in self.of(pool, DRAINING) if i.slot not in paired and not self.in_move(i)]
                drains = [i for i in drains if i.load(self.requests)]
                if not free or len(self.of(pool, *range(5))) < 2:
                    break
                least = {i.slot: self.freeness(i) for i in free} | {i.slot: -inf for i in drains}
                source = min(free + drains, key=lambda i: (least[i.slot], i.slot))
                to = max(free, key=lambda i: (least[i.slot], -i.slot))
                gap = least[to.slot] - least[source.slot]
                if source is to or gap < self.rules.gap_blocks or least[source.slot] > self.rules.from_blocks:
                    break
                paired |= {source.slot, to.slot}
                self.move_one(source, to, least[source.slot], now)

    def in_move(self, instance):
        batches = [r for i in self.instances if i.status in (SERVING, DRAINING) for r in i.batch]
        copies = any(
            r.migrating_to is not None and instance.slot in (r.served_by, r.migrating_to) for r in batches
        )
        return copies or any(
            r.served_by == instance.slot and r.source_slot is not None for r in self.in_flight
        )

    def move_one(self, source, to, its, now):
        lanes = sorted({self.lane(r) for r in source.waiting}, reverse=self.rules.lowest_first)
        for lane in lanes:
            request = min((r for r in source.waiting if self.lane(r) == lane), key=lambda r: r.turn)
            if request.transferred_tokens:
                continue
            if self.worth(to, self.needed(request, to.pool), its):
                source.waiting.remove(request)
                request.served_by = to.slot
                request.hit_tokens_at_dispatch = self.reusable(request, to)
                if source.waiting:
                    self.look_soon(source, now)
                self.come(request, to, now)
            return
        blocks = {r.turn: self.blocks_of(source.pool, r.cached) for r in source.batch}
        first = min(source.batch, key=lambda r: (-r.level, blocks[r.turn], -r.admission_turn), default=None)
        if first and self.worth(to, blocks[first.turn], its):
            self.ask(first, to.slot, now)

    def worth(self, to, blocks, its):
        return not self.rules.is_guarded or self.freeness(to, other_holders=blocks) > its
