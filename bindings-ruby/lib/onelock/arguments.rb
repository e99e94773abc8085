# frozen_string_literal: true

module Onelock
  # What a program passes, as the C library takes it. What does not fit is `InvalidArgument` before any I/O.
  module Arguments
    # The longest span that the library is asked about; it has limits of its own, and names them.
    LONGEST_MS = 1 << 60

    class << self
      # Seconds as whole milliseconds; what is above 0 stays above 0.
      def milliseconds(seconds, name)
        unless seconds.is_a?(Numeric) && seconds.real?
          raise InvalidArgument, "#{name}: #{seconds.inspect} is not a number of seconds"
        end

        spans = seconds.to_f * 1000
        raise InvalidArgument, "#{name}: #{seconds} s is not a span of time" if spans.nan? || spans.negative?

        whole = spans > LONGEST_MS ? LONGEST_MS : spans.round
        whole.zero? && spans.positive? ? 1 : whole
      end

      # How long to wait: -1 for ever.
      def wait(seconds, name = "wait")
        seconds.nil? ? -1 : milliseconds(seconds, name)
      end

      # A name of a lock: any bytes. Text in another encoding than UTF-8 is converted, so that it names the same lock everywhere.
      def name(given, what = "name")
        given = given.name if given.is_a?(Symbol)
        raise InvalidArgument, "#{what}: #{given.inspect} is not a String" unless given.is_a?(String)

        plain = [Encoding::UTF_8, Encoding::BINARY, Encoding::US_ASCII].include?(given.encoding)
        plain ? given.dup.freeze : given.encode(Encoding::UTF_8).freeze
      rescue EncodingError => e
        raise InvalidArgument, "#{what}: #{e.message}"
      end

      # Text without a NUL. The value is not shown, for it may be a secret.
      def text(given, what)
        given = given.to_path if given.respond_to?(:to_path)
        given = given.name if given.is_a?(Symbol)
        raise InvalidArgument, "#{what}: not a String" unless given.is_a?(String)

        found = name(given, what)
        raise InvalidArgument, "#{what}: it has a NUL in it" if found.b.include?("\0")

        found
      end

      def flag(given, what)
        return given if [true, false].include?(given)

        raise InvalidArgument, "#{what}: #{given.inspect} is neither true nor false"
      end

      def share(given, what)
        return given.to_f if given.is_a?(Numeric) && given.real?

        raise InvalidArgument, "#{what}: #{given.inspect} is not a number"
      end

      def count(given, what)
        return given if given.is_a?(Integer) && given.between?(0, 0xffff_ffff)

        raise InvalidArgument, "#{what}: #{given.inspect} is not a whole number from 0 to #{0xffff_ffff}"
      end

      # One of the words that the library has for 0, 1, 2 ...
      def word(given, what, words)
        found = words.index(given.to_s.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase) if given.is_a?(String) || given.is_a?(Symbol)
        found || raise(InvalidArgument, "#{what}: #{given.inspect} is not one of #{words.map(&:to_sym).inspect}")
      end

      # A name that the library told: text where it is UTF-8, otherwise bytes.
      def told(bytes)
        text = bytes.dup.force_encoding(Encoding::UTF_8)
        (text.valid_encoding? ? text : text.b).freeze
      end
    end
  end
  private_constant :Arguments
end
