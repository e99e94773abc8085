# frozen_string_literal: true

module Onelock
  # How often something took how long: `wait` is the time from the call to the grant, `hold` that from the grant to the end.
  class Histogram
    BUCKETS = 32
    private_constant :BUCKETS

    class << self
      private :new
    end

    def initialize(stats, number)
      @stats = stats
      @number = number
    end

    # How many times were recorded.
    def count
      Native.stats_histogram_count(@stats, @number)
    end

    # Their sum, in seconds.
    def sum
      Native.stats_histogram_sum_us(@stats, @number) / 1e6
    end

    # 32 counts: number `i` is of times below 2**i microseconds and not below 2**(i-1); the last one is of all longer ones.
    def buckets
      Array.new(BUCKETS) { |at| Native.stats_histogram_bucket(@stats, @number, at) }
    end

    # An upper bound of a quantile (0.0 to 1.0), in seconds; 0 when nothing was recorded.
    def quantile(share)
      Native.stats_histogram_quantile_us(@stats, @number, Arguments.share(share, "share")) / 1e6
    end
  end

  # Counters and histograms of a client since it was made, from `Client#stats`.
  #
  # `held`:: leases held now
  # `waiting`:: acquires waiting now
  # `acquired`:: acquires that were granted, re-entries included
  # `busy`:: tries that found the lock busy
  # `timeouts`:: acquires that timed out
  # `cancelled`:: acquires that their caller cancelled, or that an exception from outside ended
  # `failed`:: acquires that failed for another reason
  # `released`:: leases that their holder released
  # `lost`:: leases lost
  # `renewals`, `renewals_missed`:: rounds of renewal of a lease, confirmed and missed
  # `cleaning`:: clean-ups that are not finished yet
  # `reconnects`:: connections made after the first one
  # `commands_sent`:: requests sent to the server
  # `wait`, `hold`:: a Histogram each
  class Stats
    COUNTERS = { held: 1, waiting: 2, acquired: 3, busy: 4, timeouts: 5, cancelled: 6, failed: 7, released: 8, lost: 9,
                 renewals: 10, renewals_missed: 11, cleaning: 12, reconnects: 13, commands_sent: 14 }.freeze
    private_constant :COUNTERS

    attr_reader(*COUNTERS.keys, :wait, :hold)

    class << self
      private :new
    end

    def initialize(stats, tried)
      COUNTERS.each { |name, number| instance_variable_set(:"@#{name}", Native.stats_counter(stats, number)) }
      @busy = [@busy - tried, 0].max
      @wait = Histogram.__send__(:new, stats, 1)
      @hold = Histogram.__send__(:new, stats, 2)
    end

    # The counters by their names.
    def to_h
      COUNTERS.keys.to_h { |name| [name, public_send(name)] }
    end
  end
end
