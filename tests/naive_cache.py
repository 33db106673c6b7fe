"""Prefix caches of the naive twin: what prompts share, what stays cached, and what is evicted."""


class NaiveCache:
    def hashes(self, request, tokens):
        """Hashes of the whole blocks of so many tokens of prompt and answer, where instances keep them."""
        return request.hashes[: tokens // self.fleet.prefix_block_tokens] if self.prefix == "blocks" else []

    def held_hashes(self, instance):
        """Hashes of the blocks that the instance's requests hold."""
        return {one for r in instance.batch + instance.joining + instance.outbound for one in r.refs}

    def reusable(self, request, instance):
        """Tokens of the prompt that the instance would not compute."""
        tokens = request.given if self.prefix == "given" else 0
        there = self.held_hashes(instance)
        for one in self.reusable_hashes(request):
            if one not in there and one not in instance.cache:
                break
            tokens += self.fleet.prefix_block_tokens
        return min(tokens, request.input_tokens - 1 if self.prefix == "given" else self.sparable(request))

    def sparable(self, request):
        """Tokens before the KV block of the prompt's last token, which is always computed."""
        before = request.input_tokens + request.made - 1
        return before - before % self.fleet.kv_block_tokens

    def reusable_hashes(self, request):
        """Hashes of the prompt's whole blocks with such tokens."""
        ends = self.sparable(request) + self.fleet.prefix_block_tokens - 1
        return self.hashes(request, min(ends, request.input_tokens + request.made))

    def hold_blocks(self, request, instance):
        """It holds the hashed blocks of what it has cached, up to one whose hash the instance has already."""
        self.forget(instance)
        there = self.held_hashes(instance)
        for one in self.hashes(request, request.cached)[len(request.refs) :]:
            if one in there or one in instance.cache:
                break
            request.refs.append(one)

    def forget(self, instance, more=0):
        """The least recently used blocks that no request holds go, as far as the others need their memory,
        with `more` tokens of each decoding request."""
        while instance.cache:
            cached = len(instance.cache) * self.fleet.prefix_block_tokens
            held = self.memory(instance.pool, instance.batch, more, instance.joining + instance.outbound)
            held += instance.ended_uncached_tokens
            if held + cached <= self.capacity(instance.pool):
                return
            instance.cache.pop(0)

    def leave(self, request, instance, computed):
        """The request has left the instance: what it alone held is kept, as far as it was computed."""
        there = self.held_hashes(instance)
        held = there | set(request.refs)
        rows = self.capacity(instance.pool) // self.fleet.prefix_block_tokens + 1
        for one in reversed(self.hashes(request, computed)):
            if one not in there:
                is_full = one not in held and len(held) + len(instance.cache) == rows
                kept = instance.cache[is_full and one not in instance.cache :]
                instance.cache = [other for other in kept if other != one] + [one]
                held.discard(one)
        request.refs = []
