"""The fleet of the naive twin: the life of its instances, and the rules that scale it."""

from math import ceil, inf

GONE, SERVING, BOOTING, DRAINING, DONATED = range(5)
WHOLE, PREFILL_ONLY, DECODE_ONLY = range(3)


class NaiveFleet:
    def change(self, instance, status, now):
        self.account(instance, now)
        if instance.status == GONE:
            self.rented_from_s[instance.slot] = now
        elif status == GONE:
            self.rented_s += now - self.rented_from_s.pop(instance.slot)
        instance.status = status
        if status in (GONE, DONATED):
            for rank in instance.ranks:
                rank.cache = []

    def account(self, instance, now):
        if instance.status != GONE:
            self.spent[instance.pool][instance.status - 1] += now - instance.accounted_until_s
        instance.accounted_until_s = now

    def of(self, pool, *statuses):
        return [i for i in self.by_pool[pool] if i.status in statuses]

    def held(self, pool):
        return len(self.of(pool, SERVING, BOOTING))

    def blocks(self, pool):
        """The teams that the pool leads, each the slots of all its instances, those that prefill first."""
        sides = [pool, self.fleet.then[pool]]
        slots, sizes = self.fleet.slots, self.fleet.team
        count = (slots[pool + 1] - slots[pool]) // sizes[pool]
        return [
            [i for e in sides for i in self.by_pool[e] if (i.slot - slots[e]) // sizes[e] == k]
            for k in range(count)
        ]

    def led(self, pool):
        return self.fleet.team[pool] > 0 and self.fleet.then[pool] < 0

    def add_team(self, pool, now):
        for status in (DRAINING, DONATED, GONE):
            team = next((one for one in self.blocks(pool) if one[0].status == status), None)
            if team:
                break
        else:
            return False
        gone, own = [i for i in team if i.status == GONE], [i for i in team if i.status == DONATED]
        for gpu in {self.gpu(i.pool) for i in gone}:
            there = self.peers(team[0].pool, gpu)
            short = self.gpus(i for i in there if i.status != GONE) - self.cap(pool, gpu)
            short += self.gpus(i for i in gone if self.gpu(i.pool) == gpu)
            spare = self.gpus(i for i in there if i.status == DONATED and i not in own)
            if spare < short:
                return False
        fleet = self.fleet
        spot_s = self.spot_s(pool)
        delays = [spot_s * float(fleet.boot_factor[fleet.kind[i.pool]]) for i in own]
        delays += [float(fleet.boot_cold_s[i.pool]) for i in gone]
        self.next_boot_sample[pool] += bool(delays)
        for instance in [i for i in team if i.status == DRAINING]:
            self.come_back(instance, now)
        for instance in own + gone:
            if instance in gone:
                self.make_room(instance.pool, now)
            self.change(instance, BOOTING, now)
            instance.wakes_s = now + max(delays)
        return True

    def remove_team(self, pool, now):
        if self.held(pool) - self.fleet.team[pool] < self.fleet.min_instances[pool]:
            return False
        booting = [one for one in self.blocks(pool) if one[0].status == BOOTING]
        serving = [one for one in self.blocks(pool) if one[0].status == SERVING]
        if not booting + serving:
            return False
        loads = {one[0].slot: sum(i.load(self.requests) for i in one) for one in serving}
        team = booting[0] if booting else min(serving, key=lambda o: (loads[o[0].slot], -o[0].slot))
        for instance in team:
            if instance.status == BOOTING:
                instance.wakes_s = inf
                self.change(instance, DONATED, now)
            elif instance.status == SERVING:
                self.change(instance, DRAINING, now)
                self.donate_when_empty(instance, now)
        return True

    def come_back(self, instance, now):
        if instance.donation_due_s is not None:
            instance.donation_due_s, instance.wakes_s = None, inf
        self.change(instance, SERVING, now)

    def add(self, pool, now):
        if self.fleet.team[pool]:
            return self.add_team(pool, now)
        if self.of(pool, DRAINING):
            self.come_back(self.of(pool, DRAINING)[0], now)
            return True
        if self.of(pool, DONATED):
            instance = self.of(pool, DONATED)[0]
            delay_s = self.spot_s(pool) * float(self.fleet.boot_factor[self.fleet.kind[pool]])
        elif self.of(pool, GONE) and self.make_room(pool, now):
            instance = self.of(pool, GONE)[0]
            delay_s = float(self.fleet.boot_cold_s[pool])
        else:
            return False
        self.next_boot_sample[pool] += 1
        self.change(instance, BOOTING, now)
        instance.wakes_s = now + delay_s
        return True

    def spot_s(self, pool):
        """The pool's next draw: each pool begins elsewhere in them."""
        draws = self.fleet.boot_spot_s
        return float(draws[(pool * len(draws) // self.pools + self.next_boot_sample[pool]) % len(draws)])

    def gpus(self, instances):
        return sum(self.fleet.gpus[self.fleet.kind[i.pool]] for i in instances)

    def cap(self, pool, gpu):
        return self.fleet.cap_gpus[self.fleet.region[pool]][gpu]

    def peers(self, pool, gpu):
        """Instances of the pool's region on this GPU type."""
        region = self.fleet.region[pool]
        return [i for i in self.instances if self.fleet.region[i.pool] == region and self.gpu(i.pool) == gpu]

    def make_room(self, pool, now):
        fleet, gpu = self.fleet, self.gpu(pool)
        there = self.peers(pool, gpu)
        peers = sorted({i.pool for i in there})
        donated = [i for i in there if i.status == DONATED]
        short = self.gpus(i for i in there if i.status != GONE) + fleet.gpus[fleet.kind[pool]]
        short -= self.cap(pool, gpu)
        if self.gpus(donated) < short:
            return False
        while short > 0:
            most = max(peers, key=lambda e: (len(self.of(e, DONATED)), -e))
            self.change(self.of(most, DONATED)[0], GONE, now)
            short -= fleet.gpus[fleet.kind[most]]
        return True

    def gpu(self, pool):
        return self.fleet.gpu[self.fleet.kind[pool]]

    def remove(self, pool, now):
        if self.fleet.team[pool]:
            return self.remove_team(pool, now)
        if self.held(pool) <= self.fleet.min_instances[pool]:
            return False
        if self.of(pool, BOOTING):
            instance = self.of(pool, BOOTING)[0]
            instance.wakes_s = inf
            self.change(instance, DONATED, now)
            return True
        instance = min(self.of(pool, SERVING), key=lambda i: (i.load(self.requests), -i.slot))
        self.change(instance, DRAINING, now)
        self.donate_when_empty(instance, now)
        return True

    def donate_when_empty(self, instance, now):
        if instance.status != DRAINING or instance.load(self.requests):
            return
        if instance.donation_due_s is None:
            instance.donation_due_s = instance.wakes_s = now + self.fleet.donate_s
        if now >= instance.donation_due_s:
            instance.donation_due_s, instance.wakes_s = None, inf
            self.change(instance, DONATED, now)

    def leading(self):
        return [pool for pool in range(self.pools) if not self.led(pool)]

    def follow(self, now):
        wanted = [max(pair) for pair in zip(self.target, self.reactive_target, strict=True)]
        for pool in self.leading():
            unit = max(1, self.fleet.team[pool])
            while self.held(pool) - unit >= wanted[pool] and self.remove(pool, now):
                pass
        for pool in self.leading():
            while self.held(pool) < wanted[pool] and self.add(pool, now):
                pass

    def react(self, pool, now):
        if self.scaling in ("follow", "reflex", "hpa") or now < self.cooldown[pool] or self.led(pool):
            return
        rule = {"chiron": self.pressure, "freeness": self.by_freeness}.get(self.scaling, self.crowding)
        grow, shrink = rule(pool, now)
        if (grow and self.add(pool, now)) or (not grow and shrink and self.remove(pool, now)):
            self.cooldown[pool] = now + self.rules.cooldown_s

    def crowding(self, pool, now):
        """Whether the signal wants more instances, and fewer: reactive, LT-U and LT-UA."""
        rules, count, target = self.rules, self.held(pool), self.target[pool]
        used, room = self.signalled(pool)
        grow, shrink = used > rules.scale_out_share * room, used < rules.scale_in_share * room
        if self.scaling in ("lt_u", "lt_ua"):
            if count == 0 < target:
                others = [
                    p for p in range(self.pools) if self.endpoint(p) == self.endpoint(pool) and self.held(p)
                ]
                seen = [self.signalled(other) for other in others]
                grow = not others or any(used > rules.scale_out_share * room for used, room in seen)
            grow, shrink = grow and count < target, shrink and count > target
        if self.scaling == "lt_ua" and now - self.hour_s >= rules.correction_s:
            predicted = self.forecast[self.endpoint(pool)] * (now - self.before_s)
            came = self.arrivals[self.endpoint(pool)]
            seen = sum(tokens for at_s, tokens in came if at_s >= self.before_s)
            if count >= target and 0 < seen >= rules.surge_ratio * predicted:
                grow = grow or used >= rules.scale_in_share * room
            if count <= target and seen <= rules.slump_ratio * predicted:
                shrink = shrink or used <= rules.scale_out_share * room
        return grow, shrink

    def pressure(self, pool, now):
        """Whether Chiron's back-pressures want more instances, and fewer."""
        llm, fleet, kind = self.fleet.llm[pool], self.fleet, self.fleet.kind[pool]
        if self.batch_only(pool):
            if not self.niw[llm]:
                return False, True
            peers = [e for e in range(self.pools) if fleet.llm[e] == llm and self.batch_only(e)]
            full = int(fleet.max_batch[kind])
            step_s = float(fleet.latency.decode_s[kind][full])
            step_s += float(fleet.latency.decode_kv_s[kind][full] * self.capacity(pool))
            head = self.niw[llm][0]
            left_s = head.arrival_s + float(self.rules.allowance_s[head.tier]) - now
            token_s = step_s / (int(fleet.drafts.made[kind][-1]) / (len(fleet.drafts.made[kind]) - 1))
            need = sum(r.output_tokens for r in self.niw[llm]) * token_s
            full *= int(fleet.ranks[kind])
            return need > sum(self.held(e) for e in peers) * full * left_s, False
        share = self.rules.pressure_share
        peers = [e for e in range(self.pools) if self.endpoint(e) == self.endpoint(pool)]
        peers = [e for e in peers if not self.batch_only(e)]
        open_ = [r for r in self.requests if not r.finish_s and self.interactive(r)]
        mine = {self.instances[slot].whole.slot for r in open_ for slot in r.stands_at()}
        busy = sum(i.slot in mine for e in peers for i in self.serving(e))
        count = sum(self.held(e) for e in peers)
        return busy > share * count, busy <= share * (count - 1)

    def work(self, pool):
        """Prompt tokens/s that come, smoothed at each tick, and what waits, over the time to catch up."""
        mine = [r for r in self.requests if r.served_by is not None and self.interactive(r)]
        mine = [r for r in mine if self.instances[r.served_by].pool == pool and r.first_token_s is None]
        return self.rate[pool] + sum(r.input_tokens for r in mine) / self.rules.catch_up_s

    def signalled(self, pool):
        """What is in use and what there is, of memory, of work, or of the one that is fuller."""
        memory = self.used_and_room(pool)
        work = self.work(pool), len(self.serving(pool)) * float(self.fleet.tokens_per_s[pool])
        if self.signal == "both":
            return work if work[0] * memory[1] > memory[0] * work[1] else memory
        return memory if self.signal == "memory" else work

    def keeps_up(self, pool):
        """Whether what comes and waits is sustained; the rule does not look where memory is the signal."""
        sustained = len(self.serving(pool)) * float(self.fleet.tokens_per_s[pool])
        return self.signal == "memory" or self.work(pool) < sustained

    def smooth(self):
        for pool, tokens in enumerate(self.came):
            share = min(1.0, self.rules.monitor_s / 60.0)
            self.rate[pool] += share * (tokens / self.rules.monitor_s - self.rate[pool])
        self.came = [0] * self.pools

    def reflex(self, now):
        """More than the plan while more comes, waits and is due than the instances sustain and it foresaw."""
        each = [float(tokens_per_s) for tokens_per_s in self.fleet.tokens_per_s]
        there = [self.held(e) * each[e] for e in range(self.pools)]
        work = [self.work(e) + self.due(e, there, now) for e in range(self.pools)]
        for pool in range(self.pools):
            if self.led(pool):
                continue
            peers = [e for e in range(self.pools) if self.endpoint(e) == self.endpoint(pool)]
            peers = [e for e in peers if not self.led(e)]
            is_planned = sum(work[e] for e in peers) <= sum(self.target[e] * each[e] for e in peers)
            if is_planned or (not self.held(pool) and not self.target[pool]):
                self.reactive_target[pool] = 0
                continue
            wish = ceil(work[pool] / each[pool] - 1e-3)
            is_over = work[pool] > self.rules.reactive_share * there[pool]
            self.reactive_target[pool] = (max if is_over else min)(self.reactive_target[pool], wish)

    def due(self, pool, there, now):
        """The pool's part of its llm's held niw, which is to be done before the first of it ages."""
        llm = self.fleet.llm[pool]
        answers = [e for e in range(self.pools) if self.fleet.role[e] != DECODE_ONLY]
        sustained = sum(there[e] for e in answers if self.fleet.llm[e] == llm)
        if not self.niw[llm] or not sustained:
            return 0.0
        left_s = self.niw[llm][0].arrival_s + self.rules.niw_priority_age_s - now
        held = sum(r.input_tokens for r in self.niw[llm])
        return held / max(left_s, 900.0) / sustained * there[pool]

    def wish(self, now):
        """Kubernetes' rule: as many as the signal wants; fewer only after 20 cooldowns of wanting fewer."""
        for pool in range(self.pools):
            count, wishes = self.held(pool), self.wishes[pool]
            used, one = self.used_and_room(pool)[0], self.whole_capacity(pool)
            work = self.work(pool), float(self.fleet.tokens_per_s[pool])
            if self.signal == "queue" or (self.signal == "both" and work[0] * one > used * work[1]):
                used, one = work
            each = self.rules.scale_out_share * one
            wish = count if abs(used - count * each) <= 0.1 * count * each else ceil(used / each)
            self.target[pool] = max(wish, count)
            if wish >= count:
                wishes.clear()
                continue
            wishes.append((now, wish))
            if now > wishes[0][0] and now >= wishes[0][0] + 20 * self.rules.cooldown_s:
                self.target[pool] = max(w for _, w in wishes)
                wishes.clear()
