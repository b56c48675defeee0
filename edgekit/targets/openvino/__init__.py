"""The OpenVINO target: conversion, and its files read again for operators, tensors and times."""
