package org.falkirk;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** The settings that all lanes of one incarnation of a region share. */
final class LaneSettings implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final String PRODUCER = "kafka.";

  final String region;
  final int incarnation;
  final int lanes;
  final String headerKey;
  final HashMap<String, String> producer;
  /** Null: the lanes are not fenced. */
  Fence fence;
  /** Two queries share the lanes, see {@link Marks}. */
  boolean twins;

  /** How lanes are fenced, see {@link KafkaWriter#fenced}. */
  record Fence(String ids, String gate, String token, long commitMs) implements Serializable {}

  LaneSettings(String region, int incarnation, int lanes, String headerKey, Map<String, String> producer) {
    this.region = region;
    this.incarnation = incarnation;
    this.lanes = lanes;
    this.headerKey = headerKey;
    this.producer = new HashMap<>(producer);
  }

  /**
   * Returns the settings that a job's options name: region, incarnation, lanes, headerKey and `kafka.*`, and for fenced
   * lanes ids, gate, token and commitMs.
   */
  static LaneSettings of(Map<String, String> options) {
    Map<String, String> producer = new HashMap<>();
    options.forEach((name, value) -> {
      if (name.startsWith(PRODUCER)) producer.put(name.substring(PRODUCER.length()), value);
    });
    int incarnation = Integer.parseInt(options.get("incarnation")), lanes = Integer.parseInt(options.get("lanes"));
    LaneSettings made =
        new LaneSettings(options.get("region"), incarnation, lanes, options.get("headerKey"), producer);
    if (options.containsKey("token")) {
      long commitMs = Long.parseLong(options.get("commitMs"));
      made.fence = new Fence(options.get("ids"), options.get("gate"), options.get("token"), commitMs);
    }
    return made;
  }

  /** All tasks of a JVM share a lane that is not fenced: it is only a producer. Twins have marks for each lane. */
  boolean isShared() {
    return fence == null && !twins;
  }

  /** The producer's options. */
  Properties properties() {
    Properties all = new Properties();
    all.putAll(producer);
    return all;
  }
}
