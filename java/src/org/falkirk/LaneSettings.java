package org.falkirk;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** The settings that all lanes of one incarnation of a region share. */
final class LaneSettings implements Serializable {
  private static final long serialVersionUID = 1L;

  final String region;
  final int incarnation;
  final int lanes;
  final String headerKey;
  final HashMap<String, String> producer;
  /** Null: the lanes are not fenced. */
  Fence fence;

  /** How lanes are fenced, see {@link KafkaWriter#fenced}. */
  record Fence(String ids, String gate, String token, long commitMs) implements Serializable {}

  LaneSettings(String region, int incarnation, int lanes, String headerKey, Map<String, String> producer) {
    this.region = region;
    this.incarnation = incarnation;
    this.lanes = lanes;
    this.headerKey = headerKey;
    this.producer = new HashMap<>(producer);
  }

  /** The producer's options. */
  Properties properties() {
    Properties all = new Properties();
    all.putAll(producer);
    return all;
  }
}
