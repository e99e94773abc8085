# frozen_string_literal: true

module Onelock
  # Remembers the highest fencing token and refuses every lower one. For a resource inside this process; one gate is for one
  # lock name.
  #
  #   gate = Onelock::FenceGate.new
  #   raise "too late" unless gate.admit?(lease.fencing_token)
  class FenceGate
    # Continues from `highest`: 0 for a new one, or what the resource has stored.
    def initialize(highest = 0)
      @handle = Native.owned(Native.gate_new(token(highest)), :gate_free)
    end

    # Whether the token is allowed: none higher was seen. Never blocks.
    def admit?(token)
      Native.gate_admit(@handle, token(token))
    end

    # The highest token seen, 0 for none. Store it with the resource.
    def highest
      Native.gate_highest(@handle)
    end

    private

    def token(given)
      return given if given.is_a?(Integer) && given.between?(0, (1 << 64) - 1)

      raise InvalidArgument, "token: #{given.inspect} is not a fencing token"
    end
  end
end
