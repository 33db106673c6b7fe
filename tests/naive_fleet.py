"""The fleet of the naive twin: the life of its instances, and the rules that scale it."""

from math import ceil, inf

GONE, SERVING, BOOTING, DRAINING, DONATED = range(5)
NIW = 2
INTERACTIVE, MIXED, BATCH = range(3)


class NaiveFleet:
    def change(self, instance, status, now):
        self.account(instance, now)
        if instance.status == GONE:
            self.rented_from_s[instance.slot] = now
        elif status == GONE:
            self.rented_s += now - self.rented_from_s.pop(instance.slot)
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
        fleet, region, gpu = self.fleet, endpoint % self.regions, self.fleet.gpu[self.llm(endpoint)]
        peers = range(region, self.endpoints, self.regions)
        peers = [e for e in peers if fleet.gpu[self.llm(e)] == gpu]
        there = [i for i in self.instances if i.endpoint in peers]
        donated = [i for i in there if i.status == DONATED]

        def gpus(instances):
            return sum(fleet.gpus[self.llm(i.endpoint)] for i in instances)

        short = gpus(i for i in there if i.status != GONE) + fleet.gpus[self.llm(endpoint)]
        short -= fleet.cap_gpus[region][gpu]
        if gpus(donated) < short:
            return False
        while short > 0:
            most = max(peers, key=lambda e: (len(self.of(e, DONATED)), -e))
            self.change(self.of(most, DONATED)[0], GONE, now)
            short -= fleet.gpus[self.llm(most)]
        return True

    def remove(self, endpoint, now):
        if self.held(endpoint) <= self.fleet.min_instances[endpoint]:
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
        if self.scaling in ("follow", "hpa") or now < self.cooldown[endpoint]:
            return
        grow, shrink = (self.pressure if self.scaling == "chiron" else self.crowding)(endpoint, now)
        if (grow and self.add(endpoint, now)) or (not grow and shrink and self.remove(endpoint, now)):
            self.cooldown[endpoint] = now + self.rules.cooldown_s

    def crowding(self, endpoint, now):
        """Whether memory wants more instances, and fewer: reactive, LT-U and LT-UA."""
        rules, count, target = self.rules, self.held(endpoint), self.target[endpoint]
        used, room = self.used_and_room(endpoint)
        grow, shrink = used > rules.scale_out_share * room, used < rules.scale_in_share * room
        if self.scaling in ("lt_u", "lt_ua"):
            grow, shrink = grow and count < target, shrink and count > target
        if self.scaling == "lt_ua" and now - self.hour_s >= rules.correction_s:
            predicted = self.forecast[endpoint] * (now - self.before_s)
            seen = sum(r.input_tokens for r in self.arrivals[endpoint] if r.arrival_s >= self.before_s)
            if count >= target and 0 < seen >= rules.surge_ratio * predicted:
                grow = grow or used >= rules.scale_in_share * room
            if count <= target and seen <= rules.slump_ratio * predicted:
                shrink = shrink or used <= rules.scale_out_share * room
        return grow, shrink

    def pressure(self, endpoint, now):
        """Whether Chiron's back-pressures want more instances, and fewer."""
        llm, fleet = self.llm(endpoint), self.fleet
        if self.kind(endpoint) == BATCH:
            if not self.niw[llm]:
                return False, True
            peers = [e for e in range(self.endpoints) if self.llm(e) == llm and self.kind(e) == BATCH]
            step_s = float(fleet.latency.decode_s[llm][fleet.max_batch])
            step_s += float(fleet.latency.decode_kv_s[llm][fleet.max_batch] * fleet.kv_capacity[llm])
            left_s = self.niw[llm][0].arrival_s + float(self.rules.allowance_s[NIW]) - now
            need = sum(r.output_tokens for r in self.niw[llm]) * step_s
            return need > sum(self.held(e) for e in peers) * fleet.max_batch * left_s, False
        share = self.rules.pressure_share
        peers = [
            e
            for e in self.preferred(llm, endpoint % self.regions)
            if e % self.regions == endpoint % self.regions
        ]
        peers = [e for e in peers if self.kind(e) != BATCH]
        mine = [r.served_by for r in self.requests if not r.finish_s and r.tier != NIW]
        busy = sum(i.slot in mine for e in peers for i in self.serving(e))
        count = sum(self.held(e) for e in peers)
        return busy > share * count, busy <= share * (count - 1)

    def wish(self, now):
        """Kubernetes' rule: as many as memory wants; fewer only after 20 cooldowns of wanting fewer."""
        for endpoint in range(self.endpoints):
            count, wishes = self.held(endpoint), self.wishes[endpoint]
            each = self.rules.scale_out_share * int(self.fleet.kv_capacity[self.llm(endpoint)])
            used, _ = self.used_and_room(endpoint)
            wish = count if abs(used - count * each) <= 0.1 * count * each else ceil(used / each)
            self.target[endpoint] = max(wish, count)
            if wish >= count:
                wishes.clear()
                continue
            wishes.append((now, wish))
            if now > wishes[0][0] and now >= wishes[0][0] + 20 * self.rules.cooldown_s:
                self.target[endpoint] = max(w for _, w in wishes)
                wishes.clear()
