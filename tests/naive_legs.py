"""The legs of the naive twin: chains of them, caches handed over, live moves."""

from naive_fleet import DRAINING, SERVING


class NaiveLegs:
    # --- chains of legs

    def go_on(self, request, now):
        """The leg has ended: the next one begins when the judge has read the answer and finds it wanting."""
        if request.then >= 0 and request.score < self.go_on_below[request.llm]:
            behind = self.requests[request.then]
            behind.ready_s = now + float(self.rules.judge_s[request.llm])
            self.in_flight.append(behind)
        else:
            self.spare(request)

    def shift(self):
        """The threshold of an llm with gears is that of the last gear that is not above what is seen."""
        per_s = [len(self.legs_of[llm]) / self.rules.monitor_s for llm in range(self.llms)]
        self.legs_of = [[] for _ in range(self.llms)]
        share = min(1.0, self.rules.monitor_s / 60.0)
        self.legs_per_s = [old + share * (new - old) for old, new in zip(self.legs_per_s, per_s, strict=True)]
        for llm, seen in enumerate(self.rules.gear_llm.tolist()):
            level = self.legs_per_s[seen] if self.rules.gears_by == 0 else self.load_share(seen)
            gears = zip(self.rules.gear_from[llm], self.rules.gear_below[llm], strict=True)
            held = [float(below) for least, below in gears if least <= level]
            if seen >= 0 and held:
                self.go_on_below[llm] = held[-1]

    def load_share(self, llm):
        serving = [i for e in range(self.pools) if self.fleet.llm[e] == llm for i in self.serving(e)]
        room = sum(self.whole_capacity(i.pool) for i in serving)
        return sum(i.load(self.requests) for i in serving) / room if room else 0.0

    def spare(self, request):
        while request.then >= 0:
            request = self.requests[request.then]
            request.spared = True

    # --- hand-over

    def sent(self, request, instance, now):
        """Send a request on with its first token, if its pool hands over and an instance there takes it."""
        takers = self.takers(instance)
        if not takers:
            return False
        to = min(takers, key=lambda i: (i.load(self.requests), i.slot))
        request.runs_both_phases = self.keeps(instance, to)
        if request.runs_both_phases:
            return False
        link, layers = self.fleet.link_token_s, int(self.fleet.link_layers[self.fleet.kind[instance.pool]])
        seconds = request.cached * max(float(link[self.fleet.kind[i.pool]]) for i in (instance, to))
        computed_s = instance.began_s + (now - instance.began_s) / layers
        begin_s = max(computed_s, instance.out_free_s, to.in_free_s)
        request.ready_s = max(now + seconds / layers, begin_s + seconds)
        instance.out_free_s = to.in_free_s = request.ready_s
        request.transferred_tokens, request.source_slot, request.served_by = (
            request.cached,
            instance.slot,
            to.slot,
        )
        self.came[to.pool] += request.input_tokens * bool(self.interactive(request))
        request.sender_tokens, request.sent_from, request.sent_s = request.cached, instance.slot, now
        instance.outbound.append(request)
        self.in_flight.append(request)
        return True

    def takers(self, instance):
        """Who may decode what the instance prefills: of its team, where it has one."""
        pool = self.fleet.then[instance.pool]
        serving = self.serving(pool) if pool >= 0 else []
        if serving and self.fleet.team[pool]:
            team = next(one for one in self.blocks(instance.pool) if instance in one)
            serving = [i for i in serving if i in team]
        return serving

    def team_load(self, instance):
        """What all of its team have to do, and which team it is; of one without a team nothing."""
        if not self.fleet.team[instance.pool]:
            return 0, 0
        team = next(one for one in self.blocks(instance.pool) if instance in one)
        return sum(i.load(self.requests) for i in team), team[0].slot

    def begins_at(self, instance):
        idle = [i for i in self.takers(instance) if not i.load(self.requests)]
        is_busy = bool(instance.batch or instance.joining)
        return idle[0] if self.rules.opportunism and is_busy and idle else instance

    def keeps(self, instance, to):
        if self.rules.opportunism == 2:
            return self.rules.opportunism_weight * instance.load(self.requests) < to.load(self.requests)
        alone = not (instance.joining or instance.waiting or instance.unknown)
        idle = self.rules.opportunism == 1 and not instance.batch
        return alone and (idle or self.rules.opportunism == 3)

    def release(self, request, now):
        """Free the memory that the request's cache was sent from."""
        holder, held = self.instances[request.source_slot], request.sender_tokens
        request.source_slot, request.sender_tokens = None, 0
        if held:
            before = self.holding(holder)
            holder.outbound.remove(request)
            holder.seen_kv -= before - self.holding(holder)
            self.leave(request, holder, held)
            request.cached = 0
            self.look_soon(holder, now)

    def deliver(self, request, now):
        self.in_flight.remove(request)
        request.came_s = now
        self.release(request, now)
        instance = self.instances[request.served_by]
        self.come(request, instance, now)

    # --- live moves

    def ask(self, request, to, now):
        """Begin a live move, where there can be one."""
        if request.served_by is None or request.migrating_to is not None:
            return
        here, there = self.instances[request.served_by], self.instances[to]
        if len(here.whole.ranks) > 1 or len(there.whole.ranks) > 1:
            return
        alike = self.fleet.llm[here.pool] == self.fleet.llm[there.pool] and here.role == there.role
        fits = request.input_tokens + request.output_tokens <= self.fleet.max_request_tokens[there.pool]
        serve = here.status in (SERVING, DRAINING) and there.status == SERVING
        if here is not there and alike and fits and serve and request in here.batch:
            request.migrating_to, request.migrated_tokens, request.copies, request.leaves = to, 0, 0, False
            self.copy_next(request, now)

    def copy_next(self, request, now):
        here, there = self.instances[request.served_by], self.instances[request.migrating_to]
        rest = request.cached - request.migrated_tokens
        if there.status != SERVING:
            self.give_up(request)
        elif rest <= self.rules.last_copy_tokens or request.copies >= self.rules.max_copies:
            request.leaves = True
        else:
            request.migrated_tokens, request.copies = request.cached, request.copies + 1
            request.ready_s = self.sent_over(here, there, rest, now)
            self.in_flight.append(request)

    def sent_over(self, here, there, tokens, now):
        slower = max(float(self.fleet.link_token_s[self.fleet.kind[i.pool]]) for i in (here, there))
        end_s = max(now, here.out_free_s, there.in_free_s) + tokens * slower
        here.out_free_s = there.in_free_s = end_s
        return end_s

    def let_go(self, instance, now):
        """Those that leave go at a boundary, after those that finish; whether one did."""
        gone = False
        for request in sorted((r for r in instance.batch if r.leaves), key=lambda r: r.turn):
            there = self.instances[request.migrating_to]
            if there.status != SERVING:
                self.give_up(request)
                continue
            request.migrating_to, request.leaves = None, False
            self.forget(instance)
            instance.batch.remove(request)
            self.leave(request, instance, request.cached)
            instance.queue_dirty = gone = True
            end_s = self.sent_over(instance, there, request.cached - request.migrated_tokens, now)
            request.ready_s = end_s + self.rules.move_s
            request.transferred_tokens, request.cached = request.cached, 0
            request.source_slot, request.served_by, request.sender_tokens = instance.slot, there.slot, 0
            request.sent_from, request.sent_s = instance.slot, now
            self.in_flight.append(request)
        return gone

    def give_up(self, request):
        if request.migrating_to is None:
            return
        if request in self.in_flight:
            self.in_flight.remove(request)
        request.migrating_to, request.leaves = None, False
        request.given_up += 1
